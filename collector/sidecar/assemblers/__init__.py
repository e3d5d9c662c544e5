"""The plug-ins that make tables from event logs: one file per group of tables, each of which declares ASSEMBLER.
Assemblers run in the sidecar, in analyse() and in recover.

Must not import torch or each other.
"""
