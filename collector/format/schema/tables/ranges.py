"""Ranges that the user marked."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown

TABLE = Table(
    "ranges",
    "One row per range closed by record() or pop_range().",
    (
        Column("id", "int64", "", "Number, in order of opening within a process."),
        Column("parent", "int64", "", "Enclosing range.", nullable=True),
        Column("name", "category", "", "Name.", shown=Shown("range", names="annotations")),
        Column(
            "path",
            "category",
            "",
            "Names from the outermost range, joined by /.",
            shown=Shown("range", names="annotations", separator="/"),
        ),
        Column("thread_id", "int64", "", "Thread, as the system numbers it."),
        Column("process", "int64", "", "Process, as the system numbers it.", nullable=True),
        Column(
            "step",
            "int64",
            "",
            "Training step that was under way when it opened; null in other processes.",
            nullable=True,
        ),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Host time."),
        Column(
            "device_ns",
            "int64",
            "ns",
            "Device time; 0 for a range that launched nothing, null where it cannot be known.",
            nullable=True,
        ),
        Column("batch", "int64", "", "batch_idx.", nullable=True),
        Column("total_items", "int64", "items", "total_items of a batch.", nullable=True),
        Column("failed", "bool", "", "An exception passed through it."),
        Column("training", "bool", "", "It held the thread that trains.", nullable=True),
        Column("left_open", "bool", "", "Nobody closed it: it ends where the recording ended.", nullable=True),
    ),
)
