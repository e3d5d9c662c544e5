"""The format of a run: its tables and manifests, and the calculations that every reader must share.

Must not import torch, or any package of the recorder.
"""
