"""The names in `facts` of rank.json, each declared once. A fact is data for rules and pages that no table column holds."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import COLLECTIVE, DTYPE, LEFT_OUT, Shown
from collector.format.switches import SWITCHES
from collector.format.words import TRIGGERS


@dataclass(frozen=True)
class Fact:
    """One allowed name in `facts`. Older runs lack it, and its value may be any JSON, so readers must check the value.

    `shown` declares the texts, including keys, that a redacted run shows.
    """

    name: str
    meaning: str
    shown: Shown = LEFT_OUT


UNTOLD = "exit"
"""The process ended before analyse(), at the script's last line or by sys.exit(); the two cannot be distinguished."""
_PLACE = Shown(
    "group",
    words=(
        *("0", "step", "phase", "after", "in_collective", "ended", "next", "name", "bytes", "is_begun", "group"),
        *("groups", "label", "ranks", "is_whole", "backward_group", "for_ns", "limit_ns", "alone_limit_ns", "stack"),
        *("since_ns", "works", "waits", "ended_unix_ns", "missing", *PHASE_NAMES),
    ),
    letters=COLLECTIVE.letters,
    left_out=("stack", "label"),
)
"""The public texts of a rank's position and of the next collective that it calls."""
_LOGGERS = ("logging", "TensorBoard", "Weights & Biases", "MLflow")
_DDP = (
    *("find_unused_parameters", "gradient_as_bucket_view", "static_graph", "bucket_cap_bytes", "parameter_bytes"),
    *("unused_bytes", "bucket_bytes", "backend", "device_type", "hook", "backwards", "synced_backwards", "cpu", "cuda"),
    *("gloo", "nccl", "mpi", "ucc", "xccl", "xpu"),
)
_OPTIMIZER = ("name", "error", "foreach", "fused", "momentum", "parameters", "tensors", "dtypes")
_EVENTS = (
    *("slices", "counters", "memory", "flows", "metadata", "profiler_spans", "lost", "rounded", "duplicates"),
    *("unmeasured", "args_dropped"),
)
_OUT_OF_MEMORY = (
    *("device", "requested_bytes", "total_bytes", "free_bytes", "process_bytes", "allocated_bytes"),
    *("unallocated_bytes", "place", "function", "module", "phase", "parameter_bytes", "gradient_bytes"),
    *("optimizer_bytes", "tensors", "bytes", "name", "shape", "dtype", "count", *PHASE_NAMES),
    *("cpu", "cuda", "cuda:0", "xpu", "xpu:0", "mps", "hpu", "hpu:0", "npu", "npu:0", "mlu", "mlu:0"),
)
_CALLS = (
    *("model", "place", "looks", "calls", "padded", "useful_frac", "longest_frac", "positions", "width", "rows"),
    *("again", "again_ns", "compared", "known", "known_ns", "tokens", "token_rows", "real", "trained"),
)

FACTS: tuple[Fact, ...] = (
    *(Fact(each.name, each.meaning) for each in SWITCHES),
    Fact("anomaly_mode", "Whether torch.autograd's anomaly detection was on."),
    Fact(
        "calls",
        "Modules and loaders by the line that calls them, in a few steps: calls with padding, the shares of it and of "
        "the longest row that are in use, rows × width of all calls, calls with inputs and results of the same step, and "
        "of the step before; tokens and rows of batches with named tensors, tokens that are no padding, and those that "
        "count in the loss (-1: unknown).",
        Shown(words=_CALLS, left_out=("model", "place")),
    ),
    Fact("checkout", "The git commit of the script's folder at the start, and whether tracked files differed from it."),
    Fact("cudnn_benchmark", "torch.backends.cudnn.benchmark."),
    Fact("data_parallel", "Number of devices of nn.DataParallel."),
    Fact(
        "ddp",
        "Settings of DistributedDataParallel, its backwards and how many of them reduced gradients.",
        Shown("hook", words=_DDP),
    ),
    Fact("ended_by", "The exception that ended the training.", Shown("error", words=(UNTOLD,), names="errors")),
    Fact(
        "logging",
        "Calls and time of each library that logs, and the steps they are of.",
        Shown("library", words=(*_LOGGERS, "steps", "libraries", "name", "calls", "longest_ns", "total_ns")),
    ),
    Fact("matmul_precision", "torch.get_float32_matmul_precision().", Shown(words=("highest", "high", "medium"))),
    Fact(
        "moment",
        "Where the training thread is, or was at the end: step, phase, collectives left, the next one.",
        _PLACE,
    ),
    Fact("numa_nodes", "Memory nodes whose processors the process may use."),
    Fact(
        "optimizers",
        "Of each optimizer: its class, how it loops over tensors, and its parameters by dtype.",
        Shown("optimizer", words=_OPTIMIZER, letters=DTYPE.letters, names="torch", left_out=("error",)),
    ),
    Fact(
        "out_of_memory",
        "The error on memory that ended the training: the device, the figures of its text, the line, function, module "
        "and phase that asked for memory, the bytes of parameters, gradients and optimizer state on that device, and "
        "the largest other tensors, or `count` tensors of one list, among the local variables of its traceback.",
        Shown(words=_OUT_OF_MEMORY, letters=DTYPE.letters, left_out=("place", "function", "module", "name")),
    ),
    Fact(
        "process_end",
        "Of a process that ended while it recorded: when, and by which signal or exit code where seen.",
        Shown(words=("at_unix_ns", "signal", "exit_code")),
    ),
    Fact(
        "python_threads",
        "Other Python threads of the training process, by id and name.",
        Shown("thread", words=("id", "name")),
    ),
    Fact(
        "repeated_backwards",
        "A step, the nodes that run again in several of its backwards which might be one, in the form of "
        "`unused_gradients`, how many backwards these are, the line that calls them, and whether they are of several "
        "`losses`, for several `inputs`, or of the `parts` of a result.",
        Shown(words=("step", "nodes", "kind", "backwards", "place", "losses", "inputs", "parts"), left_out=("place",)),
    ),
    Fact(
        "repeated_nodes",
        "A step, and the nodes of its backward whose operators computed what an earlier operator had computed from the "
        "same inputs, in the form of `unused_gradients`.",
        Shown(words=("step", "nodes")),
    ),
    Fact(
        "samplers",
        "Time in the sampler of each loader.",
        Shown(
            "sampler",
            words=("loader", "batches", "epochs", "first_ns", "kind", "longest_ns", "rest_ns"),
            names="torch",
        ),
    ),
    Fact("source_lines", "The text of the user's lines with most samples of stacks, by file and line."),
    Fact("source_sums", "A checksum of each line of those files, four hexadecimal digits each."),
    Fact(
        "spare_nodes",
        "A step, the nodes of its backward whose operators computed rows of which a selection then kept the share "
        "`used_frac`, in the form of `unused_gradients`.",
        Shown(words=("step", "nodes", "used_frac")),
    ),
    Fact("standing", "For how long the rank has stood still while it records, and after how long that counts.", _PLACE),
    Fact("standstills", "The longest standstills that the job got over.", _PLACE),
    Fact(
        "start_up",
        "From when on the time to the first step counts, whether that is the start of the process, when the recording "
        "began, and when the import of torch began and ended if that was seen, in Unix ns.",
        Shown(words=("since_unix_ns", "is_process", "began_unix_ns", "torch_unix_ns")),
    ),
    Fact(
        "subnormals",
        "Numbers that were read of the tensors that the backwards of a step keep, and how many of them are subnormal.",
        Shown(words=("read", "subnormal")),
    ),
    Fact(
        "triggers",
        "Windows that were asked for by what the steps did, and why.",
        Shown("trigger", words=("trigger", "step", "at_ns", "on_demand", "text", *TRIGGERS), left_out=("text",)),
    ),
    Fact(
        "unused_gradients",
        "Numbers whose gradients no update used from a step on, those of them that an optimizer holds, those that are "
        "updated, and the nodes of backward that computed nothing else: first and last number, how often they ran "
        "before, 2 for whole, 1 for a part.",
        Shown(words=("parameters", "tensors", "updated", "held", "nodes", "step")),
    ),
    Fact(
        "updates_before",
        "How many updates the optimizers of the first step had counted before it: above 0 where the training goes on "
        "from a checkpoint; null if their state does not count, or if they differ.",
    ),
    Fact(
        "completeness",
        "`complete`, or what a trace lacks, in words.",
        Shown("gap", words=("complete",)),
    ),
    Fact(
        "data_loader",
        "Whether the loader of a trace had workers: single_process or workers.",
        Shown(words=("single_process", "workers")),
    ),
    Fact(
        "entered_collectives",
        "Of a Flight Recorder dump: the number of the newest collective that was entered in each group.",
        Shown("group", words=("0",)),
    ),
    Fact("events", "Events of a trace, or of all detailed windows, by what became of them.", Shown(words=_EVENTS)),
    Fact("group_labels", "Of a Flight Recorder dump: what the script calls each process group."),
    Fact("is_flight_cut", "Whether a Flight Recorder dump lost its oldest entries."),
    Fact("job_operations", "The kind of a table of operations that was imported.", Shown(words=("pipeline",))),
    Fact(
        "nccl_status",
        "When NCCL's status was asked for, and the timeouts of the answer.",
        Shown(words=("timestamp", "timeouts"), left_out=("timestamp",)),
    ),
    Fact("process_groups", "Of a Flight Recorder dump: the ranks of each process group.", Shown("group", words=("0",))),
    Fact("steps_confidence_frac", "How sure it is that the steps of a trace are steps."),
    Fact("steps_told_by", "How the steps of a trace were found.", Shown(words=("step markers",))),
)
