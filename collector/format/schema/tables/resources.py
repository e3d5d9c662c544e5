"""What the machine was doing."""

from collector.format.schema.columns import Column, Table
from collector.format.schema.shown import Shown

_SOURCES = ("system", "process", "worker 0", "cgroup", "gpu 0")
_METRICS = (
    *("cpu_cores", "usable_cpu_cores", "main_thread_cores", "python_threads_cores", "run_queue_frac"),
    *("scheduled_per_s", "memory_bytes", "read_bytes_per_s", "memory_stall_frac", "throttled_frac"),
    *("throttled_cores", "utilization_frac", "power_w", "temperature_c", "clock_hz", "throttle_flags"),
)

TABLE = Table(
    "resources",
    "Samples of processor, memory, disk and device load.",
    (
        Column("start_ns", "int64", "ns", "Time of the sample, since the run's epoch."),
        Column("step", "int64", "", "Training step.", nullable=True),
        Column(
            "source",
            "category",
            "",
            "system, process, worker 0 …, cgroup, gpu 0 …",
            shown=Shown("source", words=_SOURCES),
        ),
        Column(
            "metric",
            "category",
            "",
            "cpu_cores, usable_cpu_cores (of the system: on the cores that the run may use), main_thread_cores, python_threads_cores (of other Python threads), run_queue_frac "
            "and scheduled_per_s (of the main thread: on a processor, waiting for one, and how often put on one), memory_bytes, "
            "read_bytes_per_s, memory_stall_frac, throttled_frac, throttled_cores, utilization_frac, power_w, temperature_c, clock_hz, throttle_flags.",
            shown=Shown("metric", words=_METRICS),
        ),
        Column(
            "value",
            "float64",
            "",
            "Value in the unit that ends the metric's name; cpu_cores is cores in use; throttle_flags says what holds a "
            "GPU's clock down: 1 power, 2 heat, 4 another limit of the hardware; "
            "throttled_frac is the share of a control group's periods in which it used up its quota of processor time, "
            "throttled_cores how many of its processors were stopped for that on average; memory_stall_frac, of the group or else of the system, is the share "
            "of time in which something in the group, or else on the whole system, waited for memory.",
        ),
    ),
    option="resources",
)
