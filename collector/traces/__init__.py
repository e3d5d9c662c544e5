"""Read and write trace files, and make runs (profiles that the server shows) from them.

`formats` has one file per trace format. This package must not import torch.
"""
