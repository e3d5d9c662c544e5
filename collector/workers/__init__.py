"""What runs where batches are made: inside DataLoader workers, in the pin thread, and around a fetch in the main process.

A worker that is spawned imports this before its first batch, so it stands on little; torch is there already and is
handed in.
"""
