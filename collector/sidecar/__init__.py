"""Make tables from the event logs of a rank: in a process of its own, in analyse(), or offline in recover.

Must not import torch.
"""
