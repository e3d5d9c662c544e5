"""What runs where batches are made: inside DataLoader workers, in the pin thread, and around a fetch in the main process.

May import `collector.edge`, `collector.ring` and the standard library; torch is there already and is handed in. Must not
import any other room: a worker that is spawned imports this before its first batch.
"""
