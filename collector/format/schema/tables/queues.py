"""Queue depths."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown
from collector.format.words import PIN_QUEUE, QUEUES, WORKER_QUEUE

TABLE = Table(
    "queues",
    "One row per queue and sample; the queues of a DataLoader are sampled each time the training thread asks for a batch and gets one.",
    (
        Column("step", "int64", "", "Training step that asked."),
        Column("start_ns", "int64", "ns", "Time of the sample, since the run's epoch."),
        Column("loader", "int32", "", "DataLoader, -1 for a queue of the user's.", nullable=True),
        Column(
            "queue",
            "category",
            "",
            f"{WORKER_QUEUE} (host side: done, not yet pinned or taken), {PIN_QUEUE} (device side), or a user's name.",
            shown=Shown("queue", words=QUEUES),
        ),
        Column("depth", "int64", "batches", "Items ready."),
        Column(
            "capacity",
            "int64",
            "batches",
            "Most that can be ready: prefetch_factor × workers for a DataLoader.",
        ),
        Column("next_ready", "bool", "", "The next batch in order is among those ready.", nullable=True),
        Column(
            "out_of_order",
            "int64",
            "batches",
            "Batches that are done and wait for an earlier one.",
            nullable=True,
        ),
        Column(
            "outstanding",
            "int64",
            "batches",
            "Batches asked of the workers and not yet received.",
            nullable=True,
        ),
        Column("batch", "int64", "", "Batch that the request brought, as in `fetches`.", nullable=True),
    ),
    option="data_pipeline",
)
