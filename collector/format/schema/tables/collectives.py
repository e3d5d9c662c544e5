"""Collectives."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import COLLECTIVE, DTYPE, GROUP

TABLE = Table(
    "collectives",
    "One row per collective call.",
    (
        Column("step", "int64", "", "Training step.", nullable=True),
        Column("name", "category", "", "Collective, such as allreduce.", shown=COLLECTIVE),
        Column("group", "category", "", "Process group.", shown=GROUP),
        Column("index", "int64", "", "Number within its group, from 0; matches the call across ranks."),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column(
            "duration_ns",
            "int64",
            "ns",
            "Length of the device kernel; where there is none, from the call to the end of the wait for it.",
        ),
        Column("bytes", "int64", "bytes", "Message size.", nullable=True),
        Column("dtype", "category", "", "Element type.", nullable=True, shown=DTYPE),
        Column("group_size", "int32", "ranks", "Ranks in the group.", nullable=True),
        Column("on_device", "bool", "", "The duration is a kernel's."),
        Column(
            "held_ns",
            "int64",
            "ns",
            "Time that the training thread stood still for it; null where a detailed window saw it.",
            nullable=True,
        ),
    ),
)
