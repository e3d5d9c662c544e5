"""Jobs that hang: where each rank is, who waits for whom, what a run keeps of it, and what other recorders say of it.

May import `collector.format`. Must not import torch, or unpickle anything: a pickle can run any code.
"""
