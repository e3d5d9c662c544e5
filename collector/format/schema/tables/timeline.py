"""Declares tables on the timeline: its tracks, slices and counters, and the ranges that the script marked."""

from collector.format.schema.columns import DTYPE, OPERATOR, Column, Shown, Table, category
from collector.format.words import SLICE_CATEGORIES

_KINDS = ("step", "phase", "stream", "thread", "worker", "stage", "annotation", "counter")
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

_TRACKS = Table(
    "tracks",
    "One row per row of the timeline: a stream, a thread, a worker, a stage, a counter.",
    (
        Column("track", "int32", "Number that slices and counters refer to."),
        category(
            "kind", "step, phase, stream, thread, worker, stage, annotation or counter.", Shown("kind", words=_KINDS)
        ),
        Column("name", "string", "Label.", shown=Shown("track", names="torch")),
        Column("process", "string", "Process as the trace names it.", shown=Shown("process", words=("job",))),
        Column("process_id", "int64", "Process id where it is a number.", nullable=True),
        Column("thread_id", "int64", "Thread id where it is a number.", nullable=True),
        Column("device", "int32", "Device index of a stream.", nullable=True),
        Column("stream", "int64", "Stream.", nullable=True),
        Column("order", "int32", "Order on the page."),
        Column("unit", "string", "Unit of a counter, empty otherwise.", shown=Shown("unit", words=("bytes", "ns"))),
    ),
)

_SLICES = Table(
    "slices",
    "Every slice of the timeline, sorted by start.",
    (
        Column("id", "int64", "Number, unique within the rank and the table."),
        Column("track", "int32", "Track."),
        Column("depth", "int32", "Nesting on the track, from 0; slices of one track and depth never overlap."),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Length; 0 for an instant."),
        category("name", "Name, whole.", Shown("slice", names="torch")),
        category(
            "category",
            f"{', '.join(SLICE_CATEGORIES[:-1])} or {SLICE_CATEGORIES[-1]}.",
            Shown("category", words=SLICE_CATEGORIES),
        ),
        Column("step", "int64", "Training step that it belongs to (of the launch, for device work).", nullable=True),
        Column("correlation", "int64", "Links a host call to the device work that it launched.", nullable=True),
        Column("parent", "int64", "Id of the slice that encloses it on its track.", nullable=True),
        Column("launched_by", "int64", "Id of the host slice that launched it, for device work.", nullable=True),
        category("operator", "Operator that owns it, for device work and runtime calls.", OPERATOR, nullable=True),
        Column("sequence", "int64", "Links an operator of the forward to its backward.", nullable=True),
        category("args", "What else the trace said of it, as a JSON object; null for nothing.", _ARGS, nullable=True),
    ),
    option="window",
)

_COUNTERS = Table(
    "counters",
    "Counter tracks of the timeline.",
    (
        Column("track", "int32", "Track."),
        Column("start_ns", "int64", "Time of the value, since the run's epoch."),
        Column("value", "float64", "Value, in the track's unit."),
    ),
)

_RANGES = Table(
    "ranges",
    "One row per range closed by record() or pop_range().",
    (
        Column("id", "int64", "Number, in order of opening within a process."),
        Column("parent", "int64", "Enclosing range.", nullable=True),
        category("name", "Name.", Shown("range", names="annotations")),
        category(
            "path", "Names from the outermost range, joined by /.", Shown("range", names="annotations", separator="/")
        ),
        Column("thread_id", "int64", "Thread, as the system numbers it."),
        Column("process", "int64", "Process, as the system numbers it.", nullable=True),
        Column(
            "step", "int64", "Training step that was under way when it opened; null in other processes.", nullable=True
        ),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Host time."),
        Column(
            "device_ns",
            "int64",
            "Device time; 0 for a range that launched nothing, null where it cannot be known.",
            nullable=True,
        ),
        Column("batch", "int64", "batch_idx.", nullable=True),
        Column("total_items", "int64", "total_items of a batch.", counts="items", nullable=True),
        Column("failed", "bool", "An exception passed through it."),
        Column("training", "bool", "It held the thread that trains.", nullable=True),
        Column("left_open", "bool", "Nobody closed it: it ends where the recording ended.", nullable=True),
    ),
)

TABLES = (_TRACKS, _SLICES, _COUNTERS, _RANGES)
