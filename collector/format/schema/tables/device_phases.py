"""Device time of the phases."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown

TABLE = Table(
    "device_phases",
    "What the parts of a step took on a CUDA device, by events on its stream; of one step in ten.",
    (
        Column("step", "int64", "", "Training step."),
        Column(
            "phase",
            "category",
            "",
            "What ends there: forward (all before the backward), backward, optimizer or tail.",
            shown=Shown("phase", words=("forward", "backward", "optimizer", "tail")),
        ),
        Column("duration_ns", "int64", "ns", "Time between the events around it, idle stretches included."),
    ),
)
