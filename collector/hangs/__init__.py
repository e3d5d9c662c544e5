"""Jobs that hang: the state of each rank, which ranks wait for which, the records that a run keeps, and dumps of other
recorders.

May import `collector.format`. Must not import torch, or unpickle anything: a pickle can run any code.
"""
