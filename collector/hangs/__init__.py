"""Jobs that hang: the state of each rank, which ranks wait for which, and the dumps of other recorders (PyTorch's
Flight Recorder, NCCL's RAS).

May import `collector.format`. Must not import torch, or unpickle anything: a pickle can run any code.
"""
