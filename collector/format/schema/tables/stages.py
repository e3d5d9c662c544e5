"""What the stages of the data pipeline did."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown
from collector.format.words import STAGE_KINDS, STAGES

TABLE = Table(
    "stages",
    "One row per stage replica, batch and kind of time; work of one batch that interleaves is summed and laid end to end. "
    "Of samples under about 50 µs only every k-th batch is timed inside, and of batches under some ms that the training "
    "process makes itself only every k-th at all; the work (or the fetch) of the others is divided as theirs was.",
    (
        Column("stage", "category", "", f"{', '.join(STAGES)}, or a user's stage.", shown=Shown("stage", words=STAGES)),
        Column("replica", "int32", "", "Worker number; -1 for the process that trains."),
        Column(
            "kind",
            "category",
            "",
            f"{', '.join(STAGE_KINDS[:-1])} or {STAGE_KINDS[-1]}.",
            shown=Shown("kind", words=STAGE_KINDS),
        ),
        Column("detail", "category", "", "Which transform, or empty.", nullable=True, shown=Shown("transform")),
        Column("loader", "int32", "", "DataLoader, null for a user's stage.", nullable=True),
        Column("epoch", "int32", "", "Iteration of that loader, from 1.", nullable=True),
        Column("batch", "int64", "", "Batch within the epoch, from 0.", nullable=True),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Time of this kind."),
        Column("cpu_ns", "int64", "ns", "Part of it on a processor.", nullable=True),
        Column("items", "int64", "", "Samples (or the user's items) it stands for."),
        Column("bytes", "int64", "bytes", "Bytes moved.", nullable=True),
        Column("longest_ns", "int64", "ns", "The slowest single item; of read, with its transforms.", nullable=True),
        Column("longest_item", "int64", "", "Dataset index of that item, where known.", nullable=True),
        Column("opened", "int64", "files", "Files opened by Python's open(), on the rows of read.", nullable=True),
        Column(
            "open_ns", "int64", "ns", "Part of the batch's time, any stage's, spent on opening them.", nullable=True
        ),
    ),
    option="data_pipeline",
)
