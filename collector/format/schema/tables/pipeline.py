"""Declares tables on the data pipeline: work of its stages, depth of its queues, fetches of the training thread."""

from collector.format.schema.columns import Column, Shown, Table, category
from collector.format.words import PIN_QUEUE, QUEUES, STAGE_KINDS, STAGES, WORKER_QUEUE

_STAGES = Table(
    "stages",
    "One row per stage replica, batch and kind of time; work of one batch that interleaves is summed and laid end to end. "
    "Of samples under about 50 µs only every k-th batch is timed inside, and of batches under some ms that the training "
    "process makes itself only every k-th at all; the work (or the fetch) of the others is divided as theirs was.",
    (
        category("stage", f"{', '.join(STAGES)}, or a user's stage.", Shown("stage", words=STAGES)),
        Column("replica", "int32", "Worker number; -1 for the process that trains."),
        category("kind", f"{', '.join(STAGE_KINDS[:-1])} or {STAGE_KINDS[-1]}.", Shown("kind", words=STAGE_KINDS)),
        category("detail", "Which transform, or empty.", Shown("transform"), nullable=True),
        Column("loader", "int32", "DataLoader, null for a user's stage.", nullable=True),
        Column("epoch", "int32", "Iteration of that loader, from 1.", nullable=True),
        Column("batch", "int64", "Batch within the epoch, from 0.", nullable=True),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Time of this kind."),
        Column("cpu_ns", "int64", "Part of it on a processor.", nullable=True),
        Column("items", "int64", "Samples (or the user's items) it stands for."),
        Column("bytes", "int64", "Bytes moved.", counts="bytes", nullable=True),
        Column("longest_ns", "int64", "The slowest single item; of read, with its transforms.", nullable=True),
        Column("longest_item", "int64", "Dataset index of that item, where known.", nullable=True),
        Column(
            "opened", "int64", "Files opened by Python's open(), on the rows of read.", counts="files", nullable=True
        ),
        Column("open_ns", "int64", "Part of the batch's time, any stage's, spent on opening them.", nullable=True),
    ),
    option="data_pipeline",
)

_QUEUES = Table(
    "queues",
    "One row per queue and sample; the queues of a DataLoader are sampled each time the training thread asks for a batch and gets one.",
    (
        Column("step", "int64", "Training step that asked."),
        Column("start_ns", "int64", "Time of the sample, since the run's epoch."),
        Column("loader", "int32", "DataLoader, -1 for a queue of the user's.", nullable=True),
        category(
            "queue",
            f"{WORKER_QUEUE} (host side: done, not yet pinned or taken), {PIN_QUEUE} (device side), or a user's name.",
            Shown("queue", words=QUEUES),
        ),
        Column("depth", "int64", "Items ready.", counts="batches"),
        Column(
            "capacity", "int64", "Most that can be ready: prefetch_factor × workers for a DataLoader.", counts="batches"
        ),
        Column("next_ready", "bool", "The next batch in order is among those ready.", nullable=True),
        Column(
            "out_of_order",
            "int64",
            "Batches that are done and wait for an earlier one.",
            counts="batches",
            nullable=True,
        ),
        Column(
            "outstanding",
            "int64",
            "Batches asked of the workers and not yet received.",
            counts="batches",
            nullable=True,
        ),
        Column("batch", "int64", "Batch that the request brought, as in `fetches`.", nullable=True),
    ),
    option="data_pipeline",
)

_FETCHES = Table(
    "fetches",
    "One row per batch that the training thread fetched: joins a step to the worker rows of `stages`.",
    (
        Column("step", "int64", "Training step that used the batch."),
        Column("index", "int64", "Row of steps that the fetch belongs to."),
        Column("loader", "int32", "DataLoader."),
        Column("epoch", "int32", "Iteration of that loader, from 1."),
        Column("batch", "int64", "Batch within the epoch, from 0."),
        Column("start_ns", "int64", "When the thread asked, since the run's epoch."),
        Column("duration_ns", "int64", "Until it had the batch."),
        Column("samples", "int64", "Samples in the batch.", counts="samples", nullable=True),
    ),
    option="data_pipeline",
)

TABLES = (_STAGES, _QUEUES, _FETCHES)
