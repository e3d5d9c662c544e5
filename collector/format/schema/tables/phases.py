"""Where in time the phases lie."""

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown

TABLE = Table(
    "phases",
    "Exclusive stretches of the training thread in time order; kept for the first steps and for detailed windows.",
    (
        Column("step", "int64", "", "Training step as in steps."),
        Column("index", "int64", "", "Row of steps that the stretch belongs to."),
        Column("phase", "category", "", "Phase name.", shown=Shown("phase", words=PHASE_NAMES)),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Length."),
    ),
)
