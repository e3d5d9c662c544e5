"""One file per group of tables; each declares ASSEMBLER. Assemblers run in the sidecar, in analyse() and in recover.

Must not import torch or each other.
"""
