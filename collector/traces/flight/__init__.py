"""Dumps of PyTorch's Flight Recorder: the last collectives of each rank of a job that hangs.

Must not unpickle anything: a pickle can run any code.
"""
