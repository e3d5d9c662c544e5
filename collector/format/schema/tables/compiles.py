"""Compilations."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import LEFT_OUT, Shown

TABLE = Table(
    "compiles",
    "Compilations, recompilations and graph breaks of torch.compile.",
    (
        Column("step", "int64", "", "Training step.", nullable=True),
        Column(
            "kind",
            "category",
            "",
            "compile, recompile or graph_break.",
            shown=Shown("kind", words=("compile", "recompile", "graph_break")),
        ),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Length; 0 for a graph break."),
        Column("name", "category", "", "Function that was compiled.", shown=Shown("function")),
        Column("reason", "string", "", "Why, in PyTorch's words.", nullable=True, shown=LEFT_OUT),
    ),
)
