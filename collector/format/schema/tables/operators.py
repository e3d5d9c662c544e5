"""Operators of the detailed windows."""

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import DTYPE, LEFT_OUT, NUMBERS, OPERATOR, Shown
from collector.format.words import FAMILIES

TABLE = Table(
    "operators",
    "One row per step, operator and input shape of the detailed windows.",
    (
        Column("step", "int64", "", "Training step; null outside of every step.", nullable=True),
        Column("name", "category", "", "Operator as PyTorch names it, such as aten::mm.", shown=OPERATOR),
        Column(
            "type",
            "category",
            "",
            "Family, such as matmul, convolution, normalization.",
            shown=Shown("type", words=FAMILIES),
        ),
        Column(
            "phase",
            "category",
            "",
            "Phase it began in, where known.",
            nullable=True,
            shown=Shown("phase", words=PHASE_NAMES),
        ),
        Column(
            "module",
            "category",
            "",
            "Path of the nn.Module that called it, where the trace has it.",
            nullable=True,
            shown=Shown("module"),
        ),
        Column(
            "input_shapes",
            "category",
            "",
            "Input shapes as JSON, such as [[64,3,7,7],[64]]; null where not recorded.",
            nullable=True,
            shown=NUMBERS,
        ),
        Column(
            "input_dtypes", "category", "", "Input dtypes as JSON; null where not recorded.", nullable=True, shown=DTYPE
        ),
        Column(
            "call_stack",
            "category",
            "",
            "Python frames, innermost first, joined by newlines; null where not recorded.",
            nullable=True,
            shown=LEFT_OUT,
        ),
        Column("count", "int64", "calls", "Calls."),
        Column("total_ns", "int64", "ns", "Host time, callees included."),
        Column("self_ns", "int64", "ns", "Host time without callees."),
        Column("device_total_ns", "int64", "ns", "Device time of the kernels launched by it and its callees."),
        Column("device_self_ns", "int64", "ns", "Device time of the kernels that it launched itself."),
        Column(
            "flops",
            "float64",
            "flop",
            "Floating-point operations from the shapes; null where no formula is known.",
            nullable=True,
        ),
        Column(
            "moved_bytes",
            "float64",
            "bytes",
            "Least bytes read and written, from the shapes; null where unknown.",
            nullable=True,
        ),
    ),
    option="window",
)
