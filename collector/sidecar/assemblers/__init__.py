"""One file per group of tables; each declares ASSEMBLER. They run in the sidecar, in analyse() and in recover.

May import `collector.ring`, `collector.traces`, `collector.format.parts`, `collector.format.schema`. Must not import torch or each other.
"""
