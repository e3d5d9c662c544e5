"""Code that runs where batches are made: in DataLoader workers, in the pin thread, and in the training process.

A spawned worker imports this room before its first batch, so the room imports little. torch is loaded already and
passed in.
"""
