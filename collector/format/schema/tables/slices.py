"""Slices of the timeline."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import DTYPE, OPERATOR, Shown
from collector.format.words import SLICE_CATEGORIES

_ARGS = Shown(
    words=(
        *("blocks per SM", "warps per SM", "est. achieved occupancy %", "grid", "block", "registers per thread"),
        *("shared memory", "bytes", "memory bandwidth (GB/s)", "stream", "device", "correlation", "External id"),
        *("Input Dims", "Input type", "Input Strides", "Sequence number", "Fwd thread id", "Group size"),
        *("In msg nelems", "Out msg nelems", "dtype"),
    ),
    letters=DTYPE.letters,
    is_json=True,
)

TABLE = Table(
    "slices",
    "Every slice of the timeline, sorted by start.",
    (
        Column("id", "int64", "", "Number, unique within the rank and the table."),
        Column("track", "int32", "", "Track."),
        Column("depth", "int32", "", "Nesting on the track, from 0; slices of one track and depth never overlap."),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Length; 0 for an instant."),
        Column("name", "category", "", "Name, whole.", shown=Shown("slice", names="torch")),
        Column(
            "category",
            "category",
            "",
            f"{', '.join(SLICE_CATEGORIES[:-1])} or {SLICE_CATEGORIES[-1]}.",
            shown=Shown("category", words=SLICE_CATEGORIES),
        ),
        Column(
            "step",
            "int64",
            "",
            "Training step that it belongs to (of the launch, for device work).",
            nullable=True,
        ),
        Column(
            "correlation",
            "int64",
            "",
            "Links a host call to the device work that it launched.",
            nullable=True,
        ),
        Column("parent", "int64", "", "Id of the slice that encloses it on its track.", nullable=True),
        Column(
            "launched_by",
            "int64",
            "",
            "Id of the host slice that launched it, for device work.",
            nullable=True,
        ),
        Column(
            "operator",
            "category",
            "",
            "Operator that owns it, for device work and runtime calls.",
            nullable=True,
            shown=OPERATOR,
        ),
        Column("sequence", "int64", "", "Links an operator of the forward to its backward.", nullable=True),
        Column(
            "args",
            "category",
            "",
            "What else the trace said of it, as a JSON object; null for nothing.",
            nullable=True,
            shown=_ARGS,
        ),
    ),
    option="window",
)
