"""GPUs over the steps: utilisation, memory, power, temperature and clock, as NVML reports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.schema.manifest import Device, RankManifest
from profiler_server.analysis.memory.resources import Resources, Series, Throttling, find_throttling
from profiler_server.figures import Chart
from profiler_server.format import format_bytes, format_share, shorten_middle
from profiler_server.pages.memory.drawing import COLORS, Drawn, Look, Write, draw_series

MOST_GPUS = 8


@dataclass(frozen=True)
class GpuRow:
    """One GPU: means over the chosen steps and the peak of its memory."""

    label: str
    utilization: str
    memory: str
    power: str
    temperature: str
    clock: str


@dataclass(frozen=True)
class GpuView:
    rows: tuple[GpuRow, ...]
    charts: tuple[Chart, ...]
    throttling: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric:
    """How one metric is shown; `scale` turns its unit into that of the screen."""

    name: str
    title: str
    caption: str
    y_title: str
    unit: str
    write: Write
    scale: float = 1.0


METRICS = (
    Metric(
        "utilization_frac",
        "Utilisation",
        "Share of the time in which at least one kernel ran. It says nothing of how well the GPU was filled.",
        "busy",
        "%",
        format_share,
        100.0,
    ),
    Metric("memory_bytes", "Memory in use", "Of all processes on the GPU.", "in use", "bytes", format_bytes),
    Metric("power_w", "Power", "Draw of the whole board.", "power", "W", lambda value: f"{value:.0f} W"),
    Metric("temperature_c", "Temperature", "Of the chip.", "temperature", "°C", lambda value: f"{value:.0f} °C"),
    Metric(
        "clock_hz",
        "Clock",
        "Of the multiprocessors. A fall while power or temperature stay high is throttling.",
        "clock",
        "GHz",
        lambda value: f"{value / 1e9:.2f} GHz",
        1e-9,
    ),
)


_CAUSES = {"power": "power limit", "heat": "too hot", "other": "hardware slowdown"}


def view_gpus(manifest: RankManifest, resources: Resources) -> GpuView | None:
    """Lay out what was sampled of the GPUs, None where nothing was."""
    sources = [entry.source for metric in METRICS for entry in resources.pick(metric.name, "gpu ")]
    if not sources:
        return None
    devices = {f"gpu {device.index}": device for device in manifest.devices}
    rows = tuple(_view_row(resources, source, devices.get(source)) for source in dict.fromkeys(sources))
    charts = [_draw(metric, resources, devices.values()) for metric in METRICS if resources.pick(metric.name, "gpu ")]
    throttled = find_throttling(resources)[:MOST_GPUS]
    return GpuView(rows[:MOST_GPUS], tuple(charts), tuple(_describe_throttling(entry) for entry in throttled))


def _describe_throttling(entry: Throttling) -> str:
    """Say how long the clock of a GPU was held down and by what."""
    causes = ", ".join(f"{_CAUSES[name]} {format_share(share)}" for name, share in entry.causes)
    return f"{entry.source.upper()} was throttled in {format_share(entry.share_frac)} of the samples: {causes}."


def _view_row(resources: Resources, source: str, device: Device | None) -> GpuRow:
    def show(name: str, figure: str = "mean") -> str:
        metric = next(metric for metric in METRICS if metric.name == name)
        series = resources.find(source, name)
        return metric.write(getattr(series, figure)) if series is not None else "not reported"

    memory = show("memory_bytes", "peak")
    if device is not None and device.memory_bytes:
        memory += f" of {format_bytes(device.memory_bytes)}"
    label = source.upper() + (f": {shorten_middle(device.name, 40)}" if device is not None else "")
    return GpuRow(label, show("utilization_frac"), memory, show("power_w"), show("temperature_c"), show("clock_hz"))


def _draw(metric: Metric, resources: Resources, devices: Sequence[Device] | object) -> Chart:
    series: tuple[Series, ...] = resources.pick(metric.name, "gpu ")[:MOST_GPUS]
    top = _find_top(metric, tuple(devices), len(series))  # type: ignore[arg-type]
    look = Look(
        id=f"gpu-{metric.name.partition('_')[0]}",
        title=metric.title,
        caption=metric.caption,
        y_title=metric.y_title,
        unit=metric.unit,
        write=metric.write,
        top=top,
        scale=metric.scale,
        size="short",
    )
    colors = ("compute", *COLORS)
    return draw_series(look, [Drawn(s.source, s, colors[i]) for i, s in enumerate(series)], resources.unit)


def _find_top(metric: Metric, devices: tuple[Device, ...], shown: int) -> tuple[str, float] | None:
    """Return the capacity of the GPU's memory, where one line of it holds for all that are shown."""
    sizes = {device.memory_bytes for device in devices if device.memory_bytes}
    return ("capacity", float(sizes.pop())) if metric.name == "memory_bytes" and shown and len(sizes) == 1 else None
