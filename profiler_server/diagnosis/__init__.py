"""From the tables of a rank to what bounds it: measuring, the verdict, the findings of the rules ranked and predicted.

May import profiler_server.diagnosis.rules and below. `case` lies under the rules, which import it alone. Must not import torch.
"""
