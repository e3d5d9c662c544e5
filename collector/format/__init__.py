"""The format of a run: its tables and manifests, and what every reader of them must answer alike.

Must not import torch, or any room that records.
"""
