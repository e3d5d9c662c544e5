"""One file per group of tables; each declares ASSEMBLER. They run in the sidecar, in analyse() and in recover.

Must not import torch or each other.
"""
