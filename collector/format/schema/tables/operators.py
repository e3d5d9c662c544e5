"""Declares the tables of detailed windows: operators, kernels and device memory."""

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import DTYPE, LEFT_OUT, NUMBERS, OPERATOR, Column, Shown, Table, category
from collector.format.words import FAMILIES

_OPERATORS = Table(
    "operators",
    "One row per step, operator and input shape of the detailed windows.",
    (
        Column("step", "int64", "Training step; null outside of every step.", nullable=True),
        category("name", "Operator as PyTorch names it, such as aten::mm.", OPERATOR),
        category("type", "Family, such as matmul, convolution, normalization.", Shown("type", words=FAMILIES)),
        category("phase", "Phase it began in, where known.", Shown("phase", words=PHASE_NAMES), nullable=True),
        category(
            "module", "Path of the nn.Module that called it, where the trace has it.", Shown("module"), nullable=True
        ),
        category(
            "input_shapes",
            "Input shapes as JSON, such as [[64,3,7,7],[64]]; null where not recorded.",
            NUMBERS,
            nullable=True,
        ),
        category("input_dtypes", "Input dtypes as JSON; null where not recorded.", DTYPE, nullable=True),
        category(
            "call_stack",
            "Python frames, innermost first, joined by newlines; null where not recorded.",
            LEFT_OUT,
            nullable=True,
        ),
        Column("count", "int64", "Calls.", counts="calls"),
        Column("total_ns", "int64", "Host time, callees included."),
        Column("self_ns", "int64", "Host time without callees."),
        Column("device_total_ns", "int64", "Device time of the kernels launched by it and its callees."),
        Column("device_self_ns", "int64", "Device time of the kernels that it launched itself."),
        Column(
            "flops",
            "float64",
            "Floating-point operations from the shapes; null where no formula is known.",
            counts="flop",
            nullable=True,
        ),
        Column(
            "moved_bytes",
            "float64",
            "Least bytes read and written, from the shapes; null where unknown.",
            nullable=True,
        ),
    ),
    option="window",
)

_KERNELS = Table(
    "kernels",
    "One row per step, kernel, device, stream, launch shape and owning operator.",
    (
        Column("step", "int64", "Training step that launched it; null outside of every step.", nullable=True),
        category("name", "Kernel as the trace names it, whole.", Shown("kernel", names="kernels")),
        category("operator", "Operator that launched it, where the trace links them.", OPERATOR, nullable=True),
        Column("device", "int32", "Device index."),
        Column("stream", "int64", "Stream."),
        category("grid", "Grid as JSON.", NUMBERS, nullable=True),
        category("block", "Block as JSON.", NUMBERS, nullable=True),
        Column("registers", "int64", "Registers per thread.", nullable=True),
        Column("shared_bytes", "int64", "Shared memory.", nullable=True),
        Column("occupancy_frac", "float64", "Estimated achieved occupancy, 0 to 1.", nullable=True),
        Column("blocks_per_sm", "float64", "Blocks per SM.", nullable=True),
        Column("tensor_core", "bool", "The name says that it uses tensor cores."),
        Column("collective", "bool", "The kernel is a collective."),
        Column("count", "int64", "Executions.", counts="executions"),
        Column("total_ns", "int64", "Sum of the durations."),
        Column("min_ns", "int64", "Shortest."),
        Column("max_ns", "int64", "Longest."),
    ),
    option="window",
)

_MEMORY = Table(
    "memory",
    "Allocator events and samples of a device's memory (or the host's, as device -1).",
    (
        Column("start_ns", "int64", "Time, since the run's epoch."),
        Column("step", "int64", "Training step.", nullable=True),
        Column("device", "int32", "Device index, -1 for the host."),
        Column("allocated_bytes", "int64", "Held by tensors after the event."),
        Column("reserved_bytes", "int64", "Held by the caching allocator.", nullable=True),
        Column("change_bytes", "int64", "What the event added, negative for a release; 0 for a sample."),
        Column("address", "int64", "Address of the block, where known.", nullable=True),
        category("operator", "Operator that it happened in.", OPERATOR, nullable=True),
        category("shape", "Shape of the tensor that the block was taken for, as JSON.", NUMBERS, nullable=True),
        category("dtype", "Type of its elements, such as float32.", DTYPE, nullable=True),
        category("module", "Path of the nn.Module that took it.", Shown("module"), nullable=True),
    ),
    option="memory",
)

TABLES = (_OPERATORS, _KERNELS, _MEMORY)
