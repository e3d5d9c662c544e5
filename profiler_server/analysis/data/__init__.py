"""The data pipeline: queues, stages, batches, and the simulated loop behind predictions."""
