"""Declares tables on the host: the load of the machine, and the Python functions that ran."""

from collector.format.phases import PHASE_NAMES
from collector.format.schema.columns import LEFT_OUT, Column, Shown, Table, category
from collector.format.words import ENDED_WORKERS, STACK_STAGES, STEP_KINDS

_SOURCES = ("system", "process", "worker 0", ENDED_WORKERS, "cgroup", "gpu 0")
_METRICS = (
    *("cpu_cores", "usable_cpu_cores", "main_thread_cores", "python_threads_cores", "run_queue_frac"),
    *("scheduled_per_s", "memory_bytes", "read_bytes_per_s", "memory_stall_frac", "throttled_frac"),
    *("throttled_cores", "utilization_frac", "power_w", "temperature_c", "clock_hz", "throttle_flags"),
)

_RESOURCES = Table(
    "resources",
    "Samples of processor, memory, disk and device load.",
    (
        Column("start_ns", "int64", "Time of the sample, since the run's epoch."),
        Column("step", "int64", "Training step.", nullable=True),
        category(
            "source",
            "system, process, worker 0 …, worker (ended) since the sample before, cgroup, gpu 0 …",
            Shown("source", words=_SOURCES),
        ),
        category(
            "metric",
            "cpu_cores, usable_cpu_cores (of the system: on the cores that the run may use), main_thread_cores, python_threads_cores (of other Python threads), run_queue_frac "
            "(of the main thread: on a processor, waiting for one), memory_bytes, "
            "read_bytes_per_s, memory_stall_frac, throttled_frac, throttled_cores, utilization_frac, power_w, temperature_c, clock_hz, throttle_flags.",
            Shown("metric", words=_METRICS),
        ),
        Column(
            "value",
            "float64",
            "Value in the unit that ends the metric's name; cpu_cores is cores in use; throttle_flags says what holds a "
            "GPU's clock down: 1 power, 2 heat, 4 another limit of the hardware; "
            "throttled_frac is the share of a control group's periods in which it used up its quota of processor time, "
            "throttled_cores how many of its processors were stopped for that on average; memory_stall_frac, of the group or else of the system, is the share "
            "of time in which something in the group, or else on the whole system, waited for memory.",
        ),
    ),
    option="resources",
)

_STACKS = Table(
    "stacks",
    "Python stacks, sampled from outside of the process at most 50 times a second of the training thread, and as often of "
    "all DataLoader workers together: how often each was seen, summed over some time. While the training thread stands still, "
    "one of the other threads that run Python is sampled too. Of samples in no step there is no row.",
    (
        Column(
            "replica",
            "int32",
            "Worker number; -1 for the thread that trains, -2 and -3 for another thread of its process.",
        ),
        Column("loader", "int32", "DataLoader that the worker works for.", nullable=True),
        category(
            "kind",
            "Of the training process: the kind of the row of steps.",
            Shown("kind", words=STEP_KINDS),
            nullable=True,
        ),
        category(
            "phase",
            "Of the training process: the phase in which the training thread was.",
            Shown("phase", words=PHASE_NAMES),
            nullable=True,
        ),
        category(
            "stage",
            f"Where a batch is made: {', '.join(STACK_STAGES)} (fetch: read or transform, not told apart; "
            "threads: other threads for which the training thread waits; beside: others while it stands still).",
            Shown("stage", words=STACK_STAGES),
            nullable=True,
        ),
        Column("start_ns", "int64", "The first of the samples, since the run's epoch."),
        Column("duration_ns", "int64", "From the first to the last of them."),
        Column("samples", "int64", "How often the stack was seen."),
        Column(
            "asleep",
            "int64",
            "Of the training thread: how often it waited for something other than a processor then.",
            nullable=True,
        ),
        Column(
            "running",
            "int64",
            "How many threads of its process ran or waited for a processor then, summed over the samples.",
            nullable=True,
        ),
        Column("entry", "int32", "How many of the frames lie outside of the stage.", nullable=True),
        category(
            "stack",
            "The frames from the outermost to the innermost, a line each: function (file:line).",
            LEFT_OUT,
            nullable=True,
        ),
    ),
    option="stacks",
)

TABLES = (_RESOURCES, _STACKS)
