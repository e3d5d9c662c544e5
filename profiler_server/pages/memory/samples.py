"""Samples of the machine while the steps ran: processors, memory of the processes, disks, GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.schema.manifest import Device, RankManifest
from collector.format.words import ENDED_WORKERS
from profiler_server.analysis.memory.resources import Resources, Series, Throttling, find_throttling, sum_series
from profiler_server.figures.charts import Axes, Chart, Line, Size, build_lines
from profiler_server.format import (
    ABSENT,
    fill_in,
    format_bytes,
    format_count,
    format_number_of,
    format_share,
    shorten_middle,
)
from profiler_server.widgets import Stat

TABLE_ROWS = 40
COLORS = ("data", "copy", "optimizer", "overlap", "communication", "backward", "compute", "host")
Write = Callable[[float], str]


@dataclass(frozen=True)
class Drawn:
    """One series to draw, with its name and its colour. `kind` has the meaning of the field `kind` of `Line`."""

    name: str
    series: Series
    color: str
    kind: str = "line"


@dataclass(frozen=True)
class Look:
    """The texts and units of a chart of series. `unit` is the unit of the y axis, which shows values times `scale`.

    `write` formats an unscaled value for the table. `top` is label and height of a dashed line, None for no line.
    """

    id: str
    title: str
    caption: str
    y_title: str
    unit: str
    write: Write
    top: tuple[str, float] | None = None
    scale: float = 1.0
    size: Size = "medium"


def draw_series(look: Look, drawn: Sequence[Drawn], x_title: str) -> Chart:
    first = min(float(entry.series.x[0]) for entry in drawn)
    last = max(float(entry.series.x[-1]) for entry in drawn)
    lines = [
        Line(entry.name, entry.color, entry.series.value * look.scale, entry.kind, x=entry.series.x)  # type: ignore[arg-type]
        for entry in drawn
    ]
    if look.top is not None:
        name, value = look.top
        lines.append(Line(name, "idle", np.array([value, value]), "dash", x=np.array([first, last])))
    longest = max((entry.series.x for entry in drawn), key=len)
    span = (first, last) if last > first else (first - 0.5, last + 0.5)
    axes = Axes(x_title=x_title, y_title=look.y_title, unit=look.unit, x_range=span, legend=len(lines) > 1)
    return Chart(
        id=look.id,
        title=look.title,
        caption=look.caption,
        figure=build_lines(longest, lines, axes),
        columns=(x_title.capitalize(), *(entry.name for entry in drawn)),
        rows=_tabulate(drawn, first, last, look.write),
        size=look.size,
    )


def _tabulate(drawn: Sequence[Drawn], first: float, last: float, write: Write) -> tuple[tuple[str, ...], ...]:
    """Return a row per section of the x axis: where it begins, and the mean of each series, "" without a sample."""
    count = min(TABLE_ROWS, max(len(entry.series.x) for entry in drawn))
    edges = np.linspace(first, np.nextafter(last, np.inf), count + 1)
    columns = []
    for entry in drawn:
        at = np.clip(np.searchsorted(edges, entry.series.x, side="right") - 1, 0, count - 1)
        present = np.bincount(at, minlength=count)
        sums = np.bincount(at, weights=entry.series.value, minlength=count)
        columns.append([write(s / n) if n else "" for s, n in zip(sums.tolist(), present.tolist(), strict=True)])
    names = [f"{edge:,.1f}" for edge in edges[:-1]]
    return tuple(zip(names, *columns, strict=True))


MOST_GPUS = 8


@dataclass(frozen=True)
class GpuView:
    """A table of GPUs, and charts. Each of `rows` has a GPU's name and the means of its metrics over the chosen steps;
    for memory, it has the peak. `throttling` has a sentence for each throttled GPU.
    """

    rows: tuple[tuple[str, ...], ...]
    charts: tuple[Chart, ...]
    throttling: tuple[str, ...] = ()


METRICS = {
    "utilization_frac": Look(
        "gpu-utilization",
        "Utilisation",
        "Share of the time in which at least one kernel ran. It says nothing of how well the GPU was filled.",
        "busy",
        "%",
        format_share,
        scale=100.0,
    ),
    "memory_bytes": Look(
        "gpu-memory", "Memory in use", "Memory of all processes on the GPU.", "in use", "bytes", format_bytes
    ),
    "power_w": Look("gpu-power", "Power", "Draw of the whole board.", "power", "W", lambda value: f"{value:.0f} W"),
    "temperature_c": Look(
        "gpu-temperature", "Temperature", "Of the chip.", "temperature", "°C", lambda value: f"{value:.0f} °C"
    ),
    "clock_hz": Look(
        "gpu-clock",
        "Clock",
        "Of the multiprocessors. A fall while power or temperature stay high is throttling.",
        "clock",
        "GHz",
        lambda value: f"{value / 1e9:.2f} GHz",
        scale=1e-9,
    ),
}


_CAUSES = {"power": "power limit", "heat": "too hot", "other": "hardware slowdown"}


def view_gpus(manifest: RankManifest, resources: Resources) -> GpuView | None:
    sources = [entry.source for name in METRICS for entry in resources.pick(name, "gpu ")]
    if not sources:
        return None
    devices = {f"gpu {device.index}": device for device in manifest.devices}
    rows = tuple(_view_row(resources, source, devices.get(source)) for source in dict.fromkeys(sources))
    charts = [_draw(name, resources, tuple(devices.values())) for name in METRICS if resources.pick(name, "gpu ")]
    throttled = find_throttling(resources)[:MOST_GPUS]
    return GpuView(rows[:MOST_GPUS], tuple(charts), tuple(_describe_throttling(entry) for entry in throttled))


def _describe_throttling(entry: Throttling) -> str:
    causes = ", ".join(f"{_CAUSES[name]} {format_share(share)}" for name, share in entry.causes)
    return f"{entry.source.upper()} was throttled in {format_share(entry.share_frac)} of the samples: {causes}."


def _view_row(resources: Resources, source: str, device: Device | None) -> tuple[str, ...]:
    def show(name: str, figure: str = "mean") -> str:
        series = resources.find(source, name)
        return METRICS[name].write(getattr(series, figure)) if series is not None else "not reported"

    memory = show("memory_bytes", "peak")
    if device is not None and device.memory_bytes:
        memory += f" of {format_bytes(device.memory_bytes)}"
    label = source.upper() + (f": {shorten_middle(device.name, 40)}" if device is not None else "")
    return label, show("utilization_frac"), memory, show("power_w"), show("temperature_c"), show("clock_hz")


def _draw(name: str, resources: Resources, devices: Sequence[Device]) -> Chart:
    series: tuple[Series, ...] = resources.pick(name, "gpu ")[:MOST_GPUS]
    top = _find_top(devices) if name == "memory_bytes" else None
    look = replace(METRICS[name], top=top, size="short")
    colors = ("compute", *COLORS)
    return draw_series(look, [Drawn(s.source, s, colors[i]) for i, s in enumerate(series)], resources.unit)


def _find_top(devices: Sequence[Device]) -> tuple[str, float] | None:
    """Return label and bytes of the GPUs' memory capacity if all known capacities are the same; else None."""
    sizes = {device.memory_bytes for device in devices if device.memory_bytes}
    return ("capacity", float(sizes.pop())) if len(sizes) == 1 else None


MOST_WORKERS = 8
USERS = {"process": "Main process", "workers": "Workers together", "system": "Whole machine"}
BUSY_FRAC = 0.9
"""Share of the usable cores above which the processors count as full."""


@dataclass(frozen=True)
class HostView:
    """The host samples. `sentence` says which programs used how many cores. `charts` show processors, `memory_charts`
    memory and disks.
    """

    sentence: str
    stats: tuple[Stat, ...]
    charts: tuple[Chart, ...]
    memory_stats: tuple[Stat, ...]
    memory_charts: tuple[Chart, ...]
    coverage: str


def view_host(manifest: RankManifest, resources: Resources) -> HostView:
    cores = _group(resources, "cpu_cores")
    memory = _group(resources, "memory_bytes")
    usable = manifest.usable_cores or float(manifest.cpu_count or 0)
    return HostView(
        sentence=describe_cores(cores, usable, len(resources.pick("memory_bytes", "worker "))),
        stats=_list_core_stats(cores, resources, usable),
        charts=_draw_cores(resources, cores, usable),
        memory_stats=_list_memory_stats(memory, resources),
        memory_charts=_draw_memory(resources, memory),
        coverage=_describe_coverage(resources),
    )


def _group(resources: Resources, metric: str) -> Mapping[str, Series]:
    found = {
        "process": resources.find("process", metric),
        "workers": sum_series(resources.pick(metric, "worker "), "workers"),
        "system": resources.find("system", metric),
    }
    return {name: series for name, series in found.items() if series is not None}


def describe_cores(cores: Mapping[str, Series], usable: float, workers: int) -> str:
    if "process" not in cores:
        return "The use of the processors was not sampled in these steps."
    used = [f"the main process used {_cores(cores['process'].mean)}"]
    if "workers" in cores:
        used.append(f"its {format_number_of(workers, 'worker')} {cores['workers'].mean:.2f}")
    if "system" not in cores or not usable:
        return f"{' and '.join(used).capitalize()}."
    own = sum(cores[name].mean for name in ("process", "workers") if name in cores)
    others = max(cores["system"].mean - own, 0.0)
    used.append(f"other programs {others:.2f}" if others >= 0.05 else "other programs next to nothing")
    full = own + others >= BUSY_FRAC * usable
    text = f"The processors {'were full' if full else 'had room'}: {', '.join(used)}, of {usable:g}."
    return f"{text} More workers or threads would take them from what runs." if full else text


def _cores(value: float) -> str:
    return f"{value:.2f} {'core' if 0.995 <= value < 1.005 else 'cores'}"


def _list_core_stats(cores: Mapping[str, Series], resources: Resources, usable: float) -> tuple[Stat, ...]:
    stats = [Stat(label, _cores(cores[name].mean), "mean in use") for name, label in USERS.items() if name in cores]
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
        "process": ("main process", "compute", "line"),
    }
    drawn = [Drawn(label, cores[name], color, kind) for name, (label, color, kind) in looks.items() if name in cores]
    charts = []
    if drawn:
        caption = (
            "Cores in use, on average since the sample before. The area above both lines is that of other programs."
        )
        top = ("cores that it may use", usable) if usable else None
        look = Look("cpu", "Processors", caption, "cores in use", "", _write_cores, top)
        charts.append(draw_series(look, drawn, resources.unit))
    workers = resources.pick("cpu_cores", "worker ")
    if workers:
        caption = (
            f"Each DataLoader worker by itself; one that is at 1.0 is limited by its core.{_say_ended(workers)}"
            f"{_say_left_out(workers)}"
        )
        look = Look("cpu-workers", "Workers", caption, "cores in use", "", _write_cores)
        charts.append(draw_series(look, _draw_each(workers), resources.unit))
    waits = [*resources.pick("run_queue_frac", "process"), *resources.pick("run_queue_frac", "worker ")]
    # The system counts a wait when it ends. A wait that began before the last sample can thus be longer than the time
    # since that sample.
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


def _say_ended(workers: Sequence[Series]) -> str:
    is_there = any(series.source == ENDED_WORKERS for series in workers)
    return " Workers that ended since the sample before share one line." if is_there else ""


def _say_left_out(workers: Sequence[Series]) -> str:
    shown = MOST_WORKERS + 1
    return f" The first {shown} of {format_count(len(workers))} are drawn." if len(workers) > shown else ""


def _list_memory_stats(memory: Mapping[str, Series], resources: Resources) -> tuple[Stat, ...]:
    stats = [Stat(label, format_bytes(memory[name].peak), "peak") for name, label in USERS.items() if name in memory]
    process = memory.get("process")
    if process is not None and len(process.value) > 1:
        growth = float(process.value[-1] - process.value[0])
        text = f"{'+' if growth >= 0 else '−'}{format_bytes(abs(growth))}"
        stats.append(Stat("Growth", text, "of the process, first to last sample"))
    reads = [*resources.pick("read_bytes_per_s", "process"), *resources.pick("read_bytes_per_s", "worker ")]
    if reads:
        rate = sum(entry.mean for entry in reads)
        stats.append(Stat("Read from disk", f"{format_bytes(rate)}/s" if rate else "nothing", "process and workers"))
    return tuple(stats)


def _draw_memory(resources: Resources, memory: Mapping[str, Series]) -> tuple[Chart, ...]:
    looks = {"process": ("main process", "compute"), "workers": ("workers together", "data")}
    drawn = [Drawn(label, memory[name], color) for name, (label, color) in looks.items() if name in memory]
    charts = []
    if drawn:
        caption = "Resident memory. Pages that processes share, such as libraries, count in each of them."
        look = Look("rss", "Memory of the processes", caption, "resident", "bytes", format_bytes)
        charts.append(draw_series(look, drawn, resources.unit))
    reads = _group(resources, "read_bytes_per_s")
    names = {
        "system": ("whole machine", "idle"),
        "process": ("main process", "compute"),
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
    text = f"{format_number_of(len(places), 'sample')} {'counts' if len(places) == 1 else 'count'}, one every 0.5 s"
    if resources.unit == "s":
        return f"{text}. {fill_in('The run has no {noun}')}, so they are shown over seconds."
    text += "." if len(places) == inside else f", of {format_count(inside)} in all steps."
    if not resources.outside:
        return text
    lie, are = ("lies", "is") if resources.outside == 1 else ("lie", "are")
    return f"{text} {format_count(resources.outside)} more {lie} outside of the steps and {are} left out."


def _write_cores(value: float) -> str:
    return f"{value:.2f}"


def _write_rate(value: float) -> str:
    return f"{format_bytes(value)}/s" if np.isfinite(value) else ABSENT
