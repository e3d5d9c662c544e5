"""Which Python functions ran."""

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import LEFT_OUT, Shown
from collector.format.words import STACK_STAGES, STEP_KINDS

TABLE = Table(
    "stacks",
    "Python stacks, sampled from outside of the process at most 50 times a second of the training thread, and as often of "
    "all DataLoader workers together: how often each was seen, summed over some time. Of samples in no step there is no row.",
    (
        Column("replica", "int32", "", "Worker number; -1 for the process that trains."),
        Column("loader", "int32", "", "DataLoader that the worker works for.", nullable=True),
        Column(
            "kind",
            "category",
            "",
            "Of the training thread: the kind of the row of steps.",
            nullable=True,
            shown=Shown("kind", words=STEP_KINDS),
        ),
        Column(
            "phase",
            "category",
            "",
            "Of the training thread: the phase.",
            nullable=True,
            shown=Shown("phase", words=PHASE_NAMES),
        ),
        Column(
            "stage",
            "category",
            "",
            f"Where a batch is made: {', '.join(STACK_STAGES)} (fetch: read or transform, not told apart).",
            nullable=True,
            shown=Shown("stage", words=STACK_STAGES),
        ),
        Column("start_ns", "int64", "ns", "The first of the samples, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "From the first to the last of them."),
        Column("samples", "int64", "", "How often the stack was seen."),
        Column("entry", "int32", "", "How many of the frames lie outside of the stage.", nullable=True),
        Column(
            "stack",
            "category",
            "",
            "The frames from the outermost to the innermost, a line each: function (file:line).",
            nullable=True,
            shown=LEFT_OUT,
        ),
    ),
    option="stacks",
)
