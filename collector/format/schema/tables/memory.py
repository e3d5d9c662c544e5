"""Device memory."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import DTYPE, NUMBERS, OPERATOR, Shown

TABLE = Table(
    "memory",
    "Allocator events and samples of a device's memory (or the host's, as device -1).",
    (
        Column("start_ns", "int64", "ns", "Time, since the run's epoch."),
        Column("step", "int64", "", "Training step.", nullable=True),
        Column("device", "int32", "", "Device index, -1 for the host."),
        Column("allocated_bytes", "int64", "bytes", "Held by tensors after the event."),
        Column("reserved_bytes", "int64", "bytes", "Held by the caching allocator.", nullable=True),
        Column("change_bytes", "int64", "bytes", "What the event added, negative for a release; 0 for a sample."),
        Column("address", "int64", "", "Address of the block, where known.", nullable=True),
        Column("operator", "category", "", "Operator that it happened in.", nullable=True, shown=OPERATOR),
        Column(
            "shape",
            "category",
            "",
            "Shape of the tensor that the block was taken for, as JSON.",
            nullable=True,
            shown=NUMBERS,
        ),
        Column("dtype", "category", "", "Type of its elements, such as float32.", nullable=True, shown=DTYPE),
        Column("module", "category", "", "Path of the nn.Module that took it.", nullable=True, shown=Shown("module")),
    ),
    option="memory",
)
