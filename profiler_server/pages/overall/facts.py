"""The facts of a run as text: where and how the run was recorded, which signals are missing, its loaders' settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Device, Loader, RankManifest, RunManifest, Signal
from collector.format.steps import sum_recorded
from profiler_server.analysis.recorded_facts import read_completeness
from profiler_server.analysis.steps.interruptions import read_between, read_interruptions, summarize_compiles
from profiler_server.diagnosis.readings import say_completeness
from profiler_server.facts.steps import CompileEvents, HeldSum, sum_interruptions
from profiler_server.format import (
    format_bytes,
    format_duration,
    format_number_of,
    format_ranks,
    format_share,
    format_steps,
    shorten_middle,
)

TEXT_LIMIT = 300
LOADERS_SHOWN = 8
DEVICES_SHOWN = 16
_HELD_SHOWN = 3
_BESIDE_FRAC = 0.05


@dataclass(frozen=True)
class Fact:
    """One line of the list of facts. If `code` is true, `value` is shown in a fixed-width font."""

    label: str
    value: str
    code: bool = False


def list_facts(
    run: RunManifest, rank: RankManifest, ranks: int, used: frozenset[int] = frozenset()
) -> tuple[Fact, ...]:
    """Return the known facts of the run, the most important first. Long values are shortened.

    `ranks` is the number of ranks with a folder here. `used` are the indexes of the devices on which kernels ran.
    """
    return tuple(fact for fact in _facts(run, rank, ranks, used) if fact.value)


def list_interruption_facts(rank: RankRun) -> Iterator[Fact]:
    compiled = summarize_compiles(rank)
    texts = [
        _describe_compiles(compiled[kind], noun)
        for kind, noun in (("compile", "compilation"), ("recompile", "recompilation"), ("graph_break", "graph break"))
        if kind in compiled
    ]
    if texts:
        yield Fact("torch.compile", ", ".join(texts))
    held = sum_interruptions(read_interruptions(rank).of_kind("checkpoint", "validation", "between"))
    if held:
        yield Fact("Held up by", "; ".join(_describe_held(entry) for entry in held[:_HELD_SHOWN]))


def list_trace_facts(rank: RankRun) -> Iterator[Fact]:
    found = read_completeness(rank.manifest.facts)
    if found is not None:
        yield Fact("Trace", say_completeness(found))


def describe_between(rank: RankRun, noun: str) -> str:
    """Return a sentence on the time between epochs, which no step covers; "" if it is short (`_BESIDE_FRAC`)."""
    total_ns = int(read_between(rank).duration_ns.sum())
    recorded_ns = sum_recorded(rank.table("steps", ("duration_ns",))) if total_ns else 0
    if not recorded_ns or total_ns < _BESIDE_FRAC * recorded_ns:
        return ""
    share = format_share(total_ns / recorded_ns)
    return f"The mean {noun} does not hold what passed between epochs: {format_duration(total_ns)}, {share} of the recorded time."


def _describe_compiles(events: CompileEvents, noun: str) -> str:
    time = f" ({format_duration(events.duration_ns)})" if events.duration_ns else ""
    return f"{format_number_of(events.count, noun)}{time}"


def _describe_held(entry: HeldSum) -> str:
    name = shorten_middle(entry.held.label, 60)
    return f"{name}, {format_number_of(entry.count, 'time')}, {format_duration(entry.total_ns)} in all"


def read_used_devices(rank: RankRun) -> frozenset[int]:
    try:
        return frozenset(rank.table("kernels", ("device",))["device"].unique().to_pylist()) - {None}
    except RunError:
        return frozenset()


def _facts(run: RunManifest, rank: RankManifest, ranks: int, used: frozenset[int]) -> Iterator[Fact]:
    command = " ".join((run.script, *run.argv))
    yield Fact("Script", shorten_middle(command, TEXT_LIMIT), code=True)
    if rank.host:
        yield Fact("Host", f"{shorten_middle(rank.host, 80)}, process {rank.pid}")
    yield Fact("Processors", _describe_cores(rank))
    yield from _list_devices(rank.devices, used)
    if not rank.devices:
        yield Fact("Device", "none: it ran on the CPU")
    if run.world_size > 1:
        yield Fact("Ranks", format_ranks(ranks, run.world_size))
    for loader in rank.loaders[:LOADERS_SHOWN]:
        kind = "Watched input" if loader.watched else "DataLoader"
        yield Fact(kind if len(rank.loaders) == 1 else f"{kind} {loader.id}", _describe_loader(loader))
    yield Fact("Software", _describe_software(run))
    yield from _list_absent(rank.signals)
    if rank.events_lost:
        yield Fact("Lost", f"{format_number_of(rank.events_lost, 'event')} that did not fit into the event ring")


def _list_absent(signals: Iterable[Signal]) -> Iterator[Fact]:
    names: dict[tuple[str, str], list[str]] = {}
    for signal in signals:
        if signal.state != "on":
            names.setdefault((signal.state, signal.reason), []).append(signal.name)
    for (state, reason), named in names.items():
        yield Fact("Not collected", shorten_middle(f"{', '.join(named)} ({state}): {reason}", TEXT_LIMIT))


def _describe_cores(rank: RankManifest) -> str:
    if rank.cpu_count is None:
        return ""
    usable = f", {rank.usable_cores:g} usable" if rank.usable_cores and rank.usable_cores != rank.cpu_count else ""
    threads = f"; torch uses {format_number_of(rank.torch_threads, 'thread')}" if rank.torch_threads else ""
    return f"{format_number_of(rank.cpu_count, 'core')}{usable}{threads}"


def _list_devices(devices: Sequence[Device], used: frozenset[int]) -> Iterator[Fact]:
    """Yield a fact per group of devices of the same name and memory. Leave out unused ones, if any is in `used`."""
    mine = [device for device in devices if device.index in used]
    if mine and len(mine) < len(devices):
        yield Fact("Devices", f"{len(mine)} of {len(devices)} GPUs used")
    alike: dict[str, list[int]] = {}
    for device in (mine or devices)[:DEVICES_SHOWN]:
        alike.setdefault(_describe_device(device), []).append(device.index)
    for text, numbers in alike.items():
        many = f"{len(numbers)} × " if len(numbers) > 1 else ""
        yield Fact("Devices" if many else "Device", f"{format_steps(numbers)}: {many}{text}")


def _describe_device(device: Device) -> str:
    memory = f", {format_bytes(device.memory_bytes)}" if device.memory_bytes else ""
    name = shorten_middle(device.name, 80)
    return f"{name}{memory}" if name else f"a GPU{memory} that the trace does not name"


def _describe_loader(loader: Loader) -> str:
    if loader.watched:
        return shorten_middle(loader.dataset, 60)
    parts = [f"{shorten_middle(loader.dataset, 60)} ({loader.style})", f"batch_size={loader.batch_size}"]
    parts.append(f"num_workers={loader.num_workers}")
    if loader.num_workers:
        parts.append(f"prefetch_factor={loader.prefetch_factor}")
        parts.append(f"persistent_workers={loader.persistent_workers}")
    parts.append(f"pin_memory={loader.pin_memory}")
    return ", ".join(parts)


def _describe_software(run: RunManifest) -> str:
    named = (("Python", run.python), ("torch", run.torch), ("CUDA", run.cuda), ("Stepscope", run.stepscope))
    return ", ".join(f"{name} {shorten_middle(value, 40)}" for name, value in named if value)
