"""Processors, memory of the processes and disk reads: who used them while the steps ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.schema.manifest import RankManifest
from profiler_server.analysis.memory.resources import Resources, Series, sum_series
from profiler_server.figures import Chart
from profiler_server.format import ABSENT, format_bytes, format_count, format_number_of, format_share
from profiler_server.pages.memory.drawing import COLORS, Drawn, Look, draw_series

MOST_WORKERS = 8
BUSY_FRAC = 0.9
"""From this share of the machine's cores on, processors are said to be the limit."""


@dataclass(frozen=True)
class Stat:
    """One figure of the head of a part, and what it is."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class HostView:
    """`sentence` says who used the processors; `charts` are of processors, `memory_charts` of memory and disks."""

    sentence: str
    stats: tuple[Stat, ...]
    charts: tuple[Chart, ...]
    memory_stats: tuple[Stat, ...]
    memory_charts: tuple[Chart, ...]
    coverage: str


def view_host(manifest: RankManifest, resources: Resources) -> HostView | None:
    """Lay the samples out; None where there are none in the chosen steps."""
    if not resources.series:
        return None
    cores = _group(resources, "cpu_cores")
    memory = _group(resources, "memory_bytes")
    usable = manifest.usable_cores or float(manifest.cpu_count or 0)
    return HostView(
        sentence=describe_cores(cores, usable, _count_workers(resources)),
        stats=_list_core_stats(cores, resources, usable),
        charts=_draw_cores(resources, cores, usable),
        memory_stats=_list_memory_stats(memory, resources),
        memory_charts=_draw_memory(resources, memory),
        coverage=_describe_coverage(resources),
    )


def _group(resources: Resources, metric: str) -> Mapping[str, Series]:
    """Return the metric of the process, of all workers together, and of the machine, as far as they are there."""
    found = {
        "process": resources.find("process", metric),
        "workers": sum_series(resources.pick(metric, "worker "), "workers"),
        "system": resources.find("system", metric),
    }
    return {name: series for name, series in found.items() if series is not None}


def _count_workers(resources: Resources) -> int:
    return len(resources.pick("memory_bytes", "worker "))


def describe_cores(cores: Mapping[str, Series], usable: float, workers: int) -> str:
    """Say who used the processors, and whether they were the limit."""
    if "process" not in cores:
        return "The use of the processors was not sampled in these steps."
    used = [f"training used {_cores(cores['process'].mean)}"]
    if "workers" in cores:
        used.append(f"its {format_number_of(workers, 'worker')} {cores['workers'].mean:.2f}")
    if "system" not in cores or not usable:
        return f"{' and '.join(used).capitalize()}."
    own = sum(cores[name].mean for name in ("process", "workers") if name in cores)
    others = max(cores["system"].mean - own, 0.0)
    used.append(f"other programs {others:.2f}" if others >= 0.05 else "other programs next to nothing")
    full = own + others >= BUSY_FRAC * usable
    head = (
        "The processors were full, so more workers or threads would take them from what runs"
        if full
        else "The processors had room"
    )
    return f"{head}: {', '.join(used)}, of {usable:g}."


def _cores(value: float) -> str:
    return f"{value:.2f} {'core' if 0.995 <= value < 1.005 else 'cores'}"


def _list_core_stats(cores: Mapping[str, Series], resources: Resources, usable: float) -> tuple[Stat, ...]:
    names = {"process": "Training process", "workers": "Workers together", "system": "Whole machine"}
    stats = [Stat(label, _cores(cores[name].mean), "mean in use") for name, label in names.items() if name in cores]
    delay = resources.find("process", "run_queue_frac")
    if delay is not None:
        stats.append(Stat("Waiting for a processor", format_share(min(delay.mean, 1.0)), "main thread, of the time"))
    if usable:
        stats.append(Stat("Cores", f"{usable:g}", "that this process may use"))
    return tuple(stats)


def _draw_cores(resources: Resources, cores: Mapping[str, Series], usable: float) -> tuple[Chart, ...]:
    looks = {
        "system": ("whole machine", "idle", "area"),
        "workers": ("workers together", "data", "line"),
        "process": ("training process", "compute", "line"),
    }
    drawn = [Drawn(label, cores[name], color, kind) for name, (label, color, kind) in looks.items() if name in cores]
    charts = []
    if drawn:
        caption = (
            "Cores in use, on average since the sample before. What is above both lines was used by other programs."
        )
        top = ("cores that it may use", usable) if usable else None
        look = Look("cpu", "Processors", caption, "cores in use", "", _write_cores, top)
        charts.append(draw_series(look, drawn, resources.unit))
    workers = resources.pick("cpu_cores", "worker ")
    if workers:
        caption = (
            f"Each DataLoader worker by itself; one that is at 1.0 is limited by its core.{_say_left_out(workers)}"
        )
        look = Look("cpu-workers", "Workers", caption, "cores in use", "", _write_cores)
        charts.append(draw_series(look, _draw_each(workers), resources.unit))
    waits = [*resources.pick("run_queue_frac", "process"), *resources.pick("run_queue_frac", "worker ")]
    # The system books a wait when it ends, so one that began before the last sample can be longer than the time since.
    delays = [replace(entry, value=np.minimum(entry.value, 1.0)) for entry in waits]
    if delays:
        caption = "How much of the time a main thread was ready to run and got no processor. Near zero is good. A wait counts where it ends."
        look = Look("run-queue", "Waiting for a processor", caption, "of the time", "%", format_share, scale=100.0)
        charts.append(draw_series(look, _draw_each(delays), resources.unit))
    return tuple(charts)


def _draw_each(series: Sequence[Series]) -> list[Drawn]:
    colors = iter(COLORS * 2)
    return [
        Drawn(entry.source, entry, "compute" if entry.source == "process" else next(colors))
        for entry in series[: MOST_WORKERS + 1]
    ]


def _say_left_out(workers: Sequence[Series]) -> str:
    shown = MOST_WORKERS + 1
    return f" The first {shown} of {format_count(len(workers))} are drawn." if len(workers) > shown else ""


def _list_memory_stats(memory: Mapping[str, Series], resources: Resources) -> tuple[Stat, ...]:
    names = {"process": "Training process", "workers": "Workers together", "system": "Whole machine"}
    stats = [Stat(label, format_bytes(memory[name].peak), "peak") for name, label in names.items() if name in memory]
    process = memory.get("process")
    if process is not None and len(process.value) > 1:
        growth = float(process.value[-1] - process.value[0])
        stats.append(Stat("Growth", _write_growth(growth), "of the process, first to last sample"))
    reads = [*resources.pick("read_bytes_per_s", "process"), *resources.pick("read_bytes_per_s", "worker ")]
    if reads:
        rate = sum(entry.mean for entry in reads)
        stats.append(Stat("Read from disk", f"{format_bytes(rate)}/s" if rate else "nothing", "process and workers"))
    return tuple(stats)


def _write_growth(growth_bytes: float) -> str:
    return f"{'+' if growth_bytes >= 0 else '−'}{format_bytes(abs(growth_bytes))}"


def _draw_memory(resources: Resources, memory: Mapping[str, Series]) -> tuple[Chart, ...]:
    looks = {"process": ("training process", "compute"), "workers": ("workers together", "data")}
    drawn = [Drawn(label, memory[name], color) for name, (label, color) in looks.items() if name in memory]
    charts = []
    if drawn:
        caption = "Resident memory. Pages that processes share, such as libraries, count in each of them."
        look = Look("rss", "Memory of the processes", caption, "resident", "bytes", format_bytes)
        charts.append(draw_series(look, drawn, resources.unit))
    reads = _group(resources, "read_bytes_per_s")
    names = {
        "system": ("whole machine", "idle"),
        "process": ("training process", "compute"),
        "workers": ("workers", "data"),
    }
    drawn = [Drawn(label, reads[name], color) for name, (label, color) in names.items() if name in reads]
    if drawn:
        caption = "What was read from disks; files that are in the system's cache are not read again and count nothing."
        look = Look("disk", "Disk reads", caption, "per second", "bytes", _write_rate)
        charts.append(draw_series(look, drawn, resources.unit))
    return tuple(charts)


def _describe_coverage(resources: Resources) -> str:
    inside = resources.samples - resources.outside
    places = {float(x) for entry in resources.series for x in np.asarray(entry.x)}
    text = f"{format_number_of(len(places), 'sample')}, one every half second"
    if resources.unit == "s":
        return f"{text}. The run has no training step, so they are shown over seconds."
    if resources.outside:
        text += f"; {format_count(resources.outside)} before the first or after the last step are left out"
    return f"{text}." if len(places) == inside else f"{text}, of {format_count(inside)} in all steps."


def _write_cores(value: float) -> str:
    return f"{value:.2f}"


def _write_rate(value: float) -> str:
    return f"{format_bytes(value)}/s" if np.isfinite(value) else ABSENT
