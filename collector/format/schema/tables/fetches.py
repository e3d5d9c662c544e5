"""What the training thread waited for."""

from collector.format.schema.columns import Column, Table

TABLE = Table(
    "fetches",
    "One row per batch that the training thread fetched: joins a step to the worker rows of `stages`.",
    (
        Column("step", "int64", "", "Training step that used the batch."),
        Column("index", "int64", "", "Row of steps that the fetch belongs to."),
        Column("loader", "int32", "", "DataLoader."),
        Column("epoch", "int32", "", "Iteration of that loader, from 1."),
        Column("batch", "int64", "", "Batch within the epoch, from 0."),
        Column("start_ns", "int64", "ns", "When the thread asked, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Until it had the batch."),
        Column("samples", "int64", "samples", "Samples in the batch.", nullable=True),
    ),
    option="data_pipeline",
)
