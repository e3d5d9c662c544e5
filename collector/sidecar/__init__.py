"""Make the tables of a rank from its event logs: in a process beside the training, in analyse() if that process is
gone, or offline in recover.

Must not import torch.
"""
