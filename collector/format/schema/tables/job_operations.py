"""Operations of a job of many ranks."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown

_KINDS = (
    *("forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv"),
    *("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce", "layernorm-grads-all-reduce"),
    *("embedding-grads-all-reduce", "optimizer-clip-main-grad", "optimizer", "gc"),
)

TABLE = Table(
    "job_operations",
    "One row per operation of a pipeline-parallel job, as its what-if analysis replays them; of imported traces only.",
    (
        Column("step", "int64", "", "Training step."),
        Column(
            "kind",
            "category",
            "",
            "forward-compute, backward-compute, forward-send, forward-recv, backward-send, backward-recv, "
            "params-all-gather, grads-reduce-scatter, separate-grads-all-reduce, layernorm-grads-all-reduce, "
            "embedding-grads-all-reduce, optimizer-clip-main-grad, optimizer or gc.",
            shown=Shown("operation", words=_KINDS),
        ),
        Column("sequence", "int64", "", "Number among those of its kind in the step, from 0."),
        Column("stage", "int32", "", "Pipeline stage, from 0."),
        Column("replica", "int32", "", "Data-parallel rank, from 0."),
        Column("start_ns", "int64", "ns", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "ns", "Length, waiting for others included."),
        Column("chunk", "int64", "", "Part of the model on its stage that it computes; null for none.", nullable=True),
        Column(
            "depth",
            "int64",
            "",
            "The same, numbered through all stages in the order of the model; null for none.",
            nullable=True,
        ),
    ),
)
