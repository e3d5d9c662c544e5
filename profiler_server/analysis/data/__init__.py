"""What rules and pages know of the data pipeline: queues, stages, batches, and the simulated loop behind
predictions."""
