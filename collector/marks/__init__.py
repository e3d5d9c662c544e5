"""Record the ranges, stages and queues that a script names itself, in the training process or its children.

Must not import torch: functions that need torch are passed in by `collector.signals.marks`.
"""
