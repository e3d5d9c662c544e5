"""The data pipeline: queues, stages, batches, and the simulated loop that predictions are made with."""
