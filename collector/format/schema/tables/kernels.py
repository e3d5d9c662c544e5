"""Kernels of the detailed windows."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import NUMBERS, OPERATOR, Shown

TABLE = Table(
    "kernels",
    "One row per step, kernel, device, stream, launch shape and owning operator.",
    (
        Column("step", "int64", "", "Training step that launched it; null outside of every step.", nullable=True),
        Column("name", "category", "", "Kernel as the trace names it, whole.", shown=Shown("kernel", names="kernels")),
        Column(
            "operator",
            "category",
            "",
            "Operator that launched it, where the trace links them.",
            nullable=True,
            shown=OPERATOR,
        ),
        Column("device", "int32", "", "Device index."),
        Column("stream", "int64", "", "Stream."),
        Column("grid", "category", "", "Grid as JSON.", nullable=True, shown=NUMBERS),
        Column("block", "category", "", "Block as JSON.", nullable=True, shown=NUMBERS),
        Column("registers", "int64", "", "Registers per thread.", nullable=True),
        Column("shared_bytes", "int64", "bytes", "Shared memory.", nullable=True),
        Column("occupancy_frac", "float64", "", "Estimated achieved occupancy, 0 to 1.", nullable=True),
        Column("blocks_per_sm", "float64", "", "Blocks per SM.", nullable=True),
        Column("tensor_core", "bool", "", "The name says that it uses tensor cores."),
        Column("collective", "bool", "", "The kernel is a collective."),
        Column("count", "int64", "executions", "Executions."),
        Column("total_ns", "int64", "ns", "Sum of the durations."),
        Column("min_ns", "int64", "ns", "Shortest."),
        Column("max_ns", "int64", "ns", "Longest."),
    ),
    option="window",
)
