"""Define the names that both tables and code use, such as stages and warning codes, each once."""

from __future__ import annotations

STAGES = ("read", "transform", "collate", "send", "pin", "h2d", "step")
"""The stages of a DataLoader in a batch's order; the index is the stage's code in the log of stages."""
STACK_STAGES = ("read", "transform", "collate", "fetch", "send", "wait", "threads", "beside")
"""The stages of batch preparation in stacks. `fetch` is read or transform if samples were not timed one by one; `threads`
is the work of other threads of the training process while the training thread waits for a thread, `beside` while it
stands still elsewhere."""
STAGE_KINDS = ("work", "input_wait", "output_wait", "setup", "cleanup")
WORKER_QUEUE, PIN_QUEUE = QUEUES = ("worker_queue", "pin_queue")
"""The queues of a DataLoader in a batch's order."""
ENDED_WORKERS = "worker (ended)"
"""The source of samples of workers that ended since the sample before. The system counts their time for the process that
started them."""
DEVICE_CATEGORIES = ("kernel", "memcpy", "memset")
SLICE_CATEGORIES = (
    *("operator", *DEVICE_CATEGORIES, "runtime", "communication", "annotation", "python", "module"),
    *("step", "phase", "stage", "wait", "overhead", "other"),
)
STEP_KINDS = ("train", "eval", "startup", "rest")
FAMILIES: tuple[str, ...] = (
    *("matmul", "convolution", "attention", "normalization", "activation", "pooling", "elementwise", "reduction"),
    *("copy", "memory", "loss", "embedding", "indexing", "random", "optimizer", "communication", "autograd"),
    *("annotation", "other"),
)
"""The families of operators: values of the column `type` in the table of operators."""
NO_OPERATOR = "(no operator"
"""The name prefix, in the table of operators, of device work that no operator launched."""
TRIGGERS = ("option", "control", "outlier", "starvation", "drift", "lines")
"""The triggers of a window: the option, control.json, an event that the sidecar found in the steps, or lines of the
user's code that the previous window does not hold. New triggers are added at the end, because the index is the
trigger's code in an order."""
SOURCES = ("collector", "kineto", "perfetto", "export", "job_operations", "flight_recorder", "nccl_ras")
"""The sources of a run: a recording, or a format of traces. A redacted run shows no other source."""
SIGNALS = (
    *("backward", "calls", "communication", "compiles", "data_pipeline", "device_time", "ending", "environment"),
    *("fetches", "forward", "gc", "gpu", "loader", "logging_calls", "memory", "optimizer", "out_of_memory", "parallel"),
    *("phases", "points", "queues", "ranges", "resources", "sampler", "saving", "serving", "stacks", "stages", "steps"),
    *("threads", "torchdata", "triggers", "unused_gradients", "window", "workers"),
)
"""The signals of a recording that a manifest can name."""
WARNINGS = (
    *("batches_guessed", "collectives", "control_file", "ddp_records", "ended_by", "input_unseen", "log_to"),
    *("no_device", "no_sidecar", "not_written", "other_world_size", "passed_over", "rank_unreadable"),
    *("ranges_left_open", "rows_dropped", "sealed_model", "sidecar_ended", "step_cut_off", "steps_inferred"),
    *("steps_lost", "steps_unseen", "steps_within_steps", "trace_args_dropped", "trace_cut_off"),
    *("trace_events_unknown", "trace_events_untimed", "trace_incomplete", "trace_without_steps", "updates_unseen"),
    *("window_cut_short",),
)
"""The warning codes of a rank."""
_ELEMENT_BYTES = (
    ("complex<double>", 16), ("complexdouble", 16), ("complex128", 16),
    ("complex<float>", 8), ("complexfloat", 8), ("complex64", 8),
    ("complex<c10::half>", 4), ("complexhalf", 4), ("complex32", 4),
    ("float8", 1), ("float4", 1), ("bfloat16", 2), ("half", 2), ("float16", 2), ("float64", 8), ("double", 8),
    ("float", 4), ("long", 8), ("int64", 8), ("int32", 4), ("short", 2), ("int16", 2), ("int8", 1),
    ("int4", 1), ("int", 4), ("char", 1), ("byte", 1), ("bool", 1),
)  # fmt: skip


def find_element_bytes(dtype: str) -> int | None:
    """Return the bytes of an element of a dtype in any spelling (c10::BFloat16, long int), None if unknown."""
    lowered = dtype.lower()
    return next((size for known, size in _ELEMENT_BYTES if known in lowered), None)
