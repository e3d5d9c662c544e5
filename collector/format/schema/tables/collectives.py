"""Declares tables on collectives: timed, in a dump or a status; and on operations of a pipeline-parallel job."""

from collector.format.schema.columns import COLLECTIVE, DTYPE, GROUP, NUMBERS, Column, Shown, Table, category

_STATES = (
    *("running", "initializing", "finalizing", "failed", "aborted"),
    *("unresponsive", "dead", "not a member"),
)
_KINDS = (
    *("forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv"),
    *("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce", "layernorm-grads-all-reduce"),
    *("embedding-grads-all-reduce", "optimizer-clip-main-grad", "optimizer", "gc"),
)

_COLLECTIVES = Table(
    "collectives",
    "One row per collective call.",
    (
        Column("step", "int64", "Training step.", nullable=True),
        category("name", "Collective, such as allreduce.", COLLECTIVE),
        category("group", "Process group.", GROUP),
        Column("index", "int64", "Number within its group, from 0; matches the call across ranks."),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column(
            "duration_ns",
            "int64",
            "Length of the device kernel; where there is none, from the call to the end of the wait for it.",
        ),
        Column("bytes", "int64", "Message size.", counts="bytes", nullable=True),
        category("dtype", "Element type.", DTYPE, nullable=True),
        Column("group_size", "int32", "Ranks in the group.", counts="ranks", nullable=True),
        Column("on_device", "bool", "The duration is a kernel's."),
        Column(
            "held_ns",
            "int64",
            "Time that the training thread stood still for it; null where a detailed window saw it.",
            nullable=True,
        ),
    ),
)

_FLIGHT = Table(
    "flight",
    "One row per collective that PyTorch's Flight Recorder still held, in order of entry; of imported dumps only.",
    (
        category("group", "Process group.", GROUP),
        Column("sequence", "int64", "Number of the call within its group; point-to-point calls count apart."),
        category("name", "Collective, such as nccl:all_reduce.", COLLECTIVE),
        Column("is_p2p", "bool", "It is a send or a receive."),
        Column("is_started", "bool", "It was seen to start."),
        Column("is_completed", "bool", "It was seen to end."),
        Column("start_ns", "int64", "When the rank entered it, since the run's epoch."),
        Column("duration_ns", "int64", "From its start to its end; null where either was not seen.", nullable=True),
        Column("bytes", "int64", "Message size.", counts="bytes", nullable=True),
        category("dtype", "Element type.", DTYPE),
        category("shapes", "Shapes of the first inputs.", NUMBERS),
        category("place", "Innermost call outside of torch, such as train.py:88 in step.", Shown("place")),
    ),
)

_COMMUNICATORS = Table(
    "communicators",
    "One row per communicator of the rank and kind of collective that NCCL's RAS counts; of an imported status only.",
    (
        category("group", "Communicator: its hash.", GROUP),
        Column("group_size", "int32", "Ranks in the communicator.", counts="ranks"),
        Column("group_rank", "int32", "Number of the rank in the communicator."),
        category(
            "state",
            "running, initializing, finalizing, failed, aborted; of a rank that RAS did not hear: unresponsive, dead, "
            "not a member.",
            Shown("state", words=_STATES),
        ),
        Column("error", "int32", "NCCL's result code, if it failed.", nullable=True),
        category("collective", "Kind, such as AllReduce; null for a rank without counts.", COLLECTIVE, nullable=True),
        Column("count", "int64", "How many of the kind it has launched.", nullable=True),
        category("process", "Host, process and device.", Shown("process")),
    ),
)

_JOB_OPERATIONS = Table(
    "job_operations",
    "One row per operation of a pipeline-parallel job, as its what-if analysis replays them; of imported traces only.",
    (
        Column("step", "int64", "Training step."),
        category("kind", f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}.", Shown("operation", words=_KINDS)),
        Column("sequence", "int64", "Number among those of its kind in the step, from 0."),
        Column("stage", "int32", "Pipeline stage, from 0."),
        Column("replica", "int32", "Data-parallel rank, from 0."),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Length, waiting for others included."),
        Column("chunk", "int64", "Part of the model on its stage that it computes; null for none.", nullable=True),
        Column(
            "depth",
            "int64",
            "The same, numbered through all stages in the order of the model; null for none.",
            nullable=True,
        ),
    ),
)

TABLES = (_COLLECTIVES, _FLIGHT, _COMMUNICATORS, _JOB_OPERATIONS)
