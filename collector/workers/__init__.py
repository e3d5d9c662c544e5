"""Code that times the making of batches where it happens: in DataLoader workers, the pin thread, and the training
process.

A spawned worker imports this room before its first batch, so the room imports little. torch is loaded already and
passed in.
"""
