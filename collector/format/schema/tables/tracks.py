"""Rows of the timeline."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown

_KINDS = ("step", "phase", "stream", "thread", "worker", "stage", "annotation", "counter")

TABLE = Table(
    "tracks",
    "One row per row of the timeline: a stream, a thread, a worker, a stage, a counter.",
    (
        Column("track", "int32", "", "Number that slices and counters refer to."),
        Column(
            "kind",
            "category",
            "",
            "step, phase, stream, thread, worker, stage, annotation or counter.",
            shown=Shown("kind", words=_KINDS),
        ),
        Column("name", "string", "", "Label.", shown=Shown("track", names="torch")),
        Column("process", "string", "", "Process as the trace names it.", shown=Shown("process", words=("job",))),
        Column("process_id", "int64", "", "Process id where it is a number.", nullable=True),
        Column("thread_id", "int64", "", "Thread id where it is a number.", nullable=True),
        Column("device", "int32", "", "Device index of a stream.", nullable=True),
        Column("stream", "int64", "", "Stream.", nullable=True),
        Column("order", "int32", "", "Order on the page."),
        Column("unit", "string", "", "Unit of a counter, empty otherwise.", shown=Shown("unit", words=("bytes", "ns"))),
    ),
)
