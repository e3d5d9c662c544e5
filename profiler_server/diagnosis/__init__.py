"""From the tables of a rank to what bounds it: measuring, the verdict, and rules' findings ranked with their predictions.

May import profiler_server.rules and below. `case` lies under the rules, which import it alone. Must not import torch.
"""
