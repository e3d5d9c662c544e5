"""Find out why a job hangs: the state of each rank, which ranks wait for which, and what the dumps of other recorders
(PyTorch's Flight Recorder, NCCL's RAS) say.

May import `collector.format`. Must not import torch, or unpickle anything: a pickle can run any code.
"""
