"""Declares the table `compiles`, on compilations by torch.compile."""

from collector.format.schema.columns import LEFT_OUT, Column, Shown, Table, category

_COMPILES = Table(
    "compiles",
    "Compilations, recompilations and graph breaks of torch.compile.",
    (
        Column("step", "int64", "Training step.", nullable=True),
        category(
            "kind", "compile, recompile or graph_break.", Shown("kind", words=("compile", "recompile", "graph_break"))
        ),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Length; 0 for a graph break."),
        category("name", "Function that was compiled.", Shown("function")),
        Column("reason", "string", "Why, in PyTorch's words.", nullable=True, shown=LEFT_OUT),
    ),
)

TABLES = (_COMPILES,)
