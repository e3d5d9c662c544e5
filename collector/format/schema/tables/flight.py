"""The last collectives of a rank."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import COLLECTIVE, DTYPE, GROUP, NUMBERS, Shown

TABLE = Table(
    "flight",
    "One row per collective that PyTorch's Flight Recorder still held, in order of entry; of imported dumps only.",
    (
        Column("group", "category", "", "Process group.", shown=GROUP),
        Column("sequence", "int64", "", "Number of the call within its group; point-to-point calls count apart."),
        Column("name", "category", "", "Collective, such as nccl:all_reduce.", shown=COLLECTIVE),
        Column("is_p2p", "bool", "", "It is a send or a receive."),
        Column("is_started", "bool", "", "It was seen to start."),
        Column("is_completed", "bool", "", "It was seen to end."),
        Column("start_ns", "int64", "ns", "When the rank entered it, since the run's epoch."),
        Column(
            "duration_ns", "int64", "ns", "From its start to its end; null where either was not seen.", nullable=True
        ),
        Column("bytes", "int64", "bytes", "Message size.", nullable=True),
        Column("dtype", "category", "", "Element type.", shown=DTYPE),
        Column("shapes", "category", "", "Shapes of the first inputs.", shown=NUMBERS),
        Column(
            "place",
            "category",
            "",
            "Innermost call outside of torch, such as train.py:88 in step.",
            shown=Shown("place"),
        ),
    ),
)
