"""What each rank of a communicator has launched."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import COLLECTIVE, GROUP, Shown

_STATES = (
    *("running", "initializing", "finalizing", "failed", "aborted"),
    *("unresponsive", "dead", "not a member"),
)

TABLE = Table(
    "communicators",
    "One row per communicator of the rank and kind of collective that NCCL's RAS counts; of an imported status only.",
    (
        Column("group", "category", "", "Communicator: its hash.", shown=GROUP),
        Column("group_size", "int32", "ranks", "Ranks in the communicator."),
        Column("group_rank", "int32", "", "Number of the rank in the communicator."),
        Column(
            "state",
            "category",
            "",
            "running, initializing, finalizing, failed, aborted; of a rank that RAS did not hear: unresponsive, dead, "
            "not a member.",
            shown=Shown("state", words=_STATES),
        ),
        Column("error", "int32", "", "NCCL's result code, if it failed.", nullable=True),
        Column(
            "collective",
            "category",
            "",
            "Kind, such as AllReduce; null for a rank without counts.",
            nullable=True,
            shown=COLLECTIVE,
        ),
        Column("count", "int64", "", "How many of the kind it has launched.", nullable=True),
        Column("process", "category", "", "Host, process and device.", shown=Shown("process")),
    ),
)
