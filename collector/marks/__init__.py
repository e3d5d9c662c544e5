"""What a script says of itself: ranges, stages and queues of its own, in the training process or its children.

Must not import torch: what only torch can do comes in from `collector.signals.marks`.
"""
