"""Declare, write and read the format of a run: its tables, its manifests, and calculations that all readers share.

Must not import torch, or any package of the recorder.
"""
