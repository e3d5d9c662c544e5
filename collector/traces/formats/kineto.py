"""Chrome traces as Kineto (torch.profiler) writes them: .json and .json.gz."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from collector.format.schema.errors import TraceError
from collector.format.schema.manifest import Warn
from collector.format.schema.wording import format_number_of
from collector.traces.failures import explain_failure
from collector.traces.format import Batches, ReadOptions, StreamedTables, TraceFacts, TraceTables
from collector.traces.kineto.ahead import Ahead
from collector.traces.kineto.collect import Log
from collector.traces.kineto.completeness import check_completeness, describe_completeness, warn_of
from collector.traces.kineto.context import Reading
from collector.traces.kineto.exposed import expose_communication
from collector.traces.kineto.facts import (
    is_wall_clock,
    name_devices,
    read_base_ns,
    read_devices,
    read_loader,
    read_ranks,
    read_versions,
)
from collector.traces.kineto.kernels import build_collectives, stream_kernels
from collector.traces.kineto.model import Trace, build_trace
from collector.traces.kineto.operators import stream_operators
from collector.traces.kineto.phases import find_phases
from collector.traces.kineto.scratch import Scratch
from collector.traces.kineto.steps import describe_steps, find_steps
from collector.traces.kineto.steptable import build_phases, build_steps
from collector.traces.kineto.stream import Damage, EventStream, ReadAhead
from collector.traces.kineto.team import Team
from collector.traces.kineto.timeline import build_counters, build_tracks, stream_memory, stream_slices
from collector.traces.kineto.tree import Tree, build_tree
from collector.traces.source import Source

HELPED_BYTES = 40 << 20
"""A process that helps takes longer to start than it saves with less than that."""
_TABLES_AT_ONCE = 2
"""The slices take as long as all other tables together."""


class KinetoFormat:
    """See `TraceFormat`."""

    name = "Kineto JSON"
    order = 1

    def read(self, path: Path, options: ReadOptions) -> TraceTables | None:
        source = Source(path, options.on_progress, options.limits)
        stream = EventStream(source, _choose_ahead(source, options.helpers))
        log = Log(scratch=Scratch(options.scratch))
        with explain_failure(path, lambda: f"at byte {stream.offset:,}"):
            chunks = stream.open()
            if chunks is None:
                return None
            with closing(chunks):
                for chunk in chunks:
                    log.add(chunk)
        trace = build_trace(log)
        if not len(trace.columns):
            raise TraceError(_explain_empty(path, stream.damage, log.counts.untimed))
        return _build_tables(path, stream, trace, options)


def _choose_ahead(source: Source, helpers: int) -> ReadAhead | None:
    """Return what reads ahead with as many helpers as a file is long enough for."""
    helpers = min(helpers, source.guess_bytes() // HELPED_BYTES)
    return Ahead(Team(helpers)).read if helpers > 0 else None


def _build_tables(path: Path, stream: EventStream, trace: Trace, options: ReadOptions) -> TraceTables:
    base_ns = read_base_ns(stream.metadata)
    first_ns, last_ns = int(trace.start_ns.min()), int(trace.end_ns.max())
    epoch_ns = first_ns + base_ns if options.epoch_unix_ns is None else options.epoch_unix_ns
    with _Beside(trace, options.helpers) as beside:
        steps = find_steps(trace, base_ns, options.steps, options.steps_from)
        trace.release()
        phases = find_phases(trace, steps)
        trace.release()
        phases = expose_communication(trace, steps, phases)
        trace.release()
        findings = check_completeness(trace, options.steps.span_ns if options.steps is not None else 0)
        reading = Reading(trace, steps, phases, beside.tree, epoch_ns - base_ns)
    rank, world_size = read_ranks(stream.metadata, path)
    facts = TraceFacts(
        rank,
        world_size,
        read_devices(stream.metadata) or name_devices(trace),
        epoch_ns,
        is_wall_clock(first_ns + base_ns),
        int(reading.to_run(np.array([last_ns]))[0]),
        read_versions(stream.metadata),
        {
            "steps_told_by": steps.how,
            "steps_confidence_frac": steps.confidence_frac,
            "events": count_events(stream, trace),
            "data_loader": read_loader(trace.names),
            "completeness": describe_completeness([*findings, *_list_losses(stream.damage, trace.log)]),
        },
    )
    lost = _count_lost(stream.damage, trace.log)
    warnings = (*_describe_damage(stream.damage, trace.log), *warn_of(findings), *describe_steps(steps))
    # The cores of the helpers are free by now.
    tables = StreamedTables(_list_tables(reading), _TABLES_AT_ONCE if options.helpers else 1)
    return TraceTables(tables, facts, warnings, lost)


class _Beside:
    """Finds what needs no steps: while steps are found, where a core is free for that, as those of helpers are by now."""

    def __init__(self, trace: Trace, helpers: int) -> None:
        self._trace = trace
        self._thread = ThreadPoolExecutor(1) if helpers else None

    def __enter__(self) -> _Beside:
        if self._thread is not None:
            self._tree = self._thread.submit(build_tree, self._trace)
            self._thread.submit(lambda: self._trace.order)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    @property
    def tree(self) -> Tree:
        return build_tree(self._trace) if self._thread is None else self._tree.result()


def _list_tables(reading: Reading) -> dict[str, Batches]:
    def build(make: Callable[[], pa.Table]) -> Batches:
        def stream() -> Iterator[pa.RecordBatch]:
            yield from make().to_batches()
            reading.trace.release()

        return stream

    return {
        "slices": lambda: stream_slices(reading),
        "steps": build(lambda: build_steps(reading)),
        "phases": build(lambda: build_phases(reading, build_steps(reading))),
        "operators": lambda: stream_operators(reading),
        "kernels": lambda: stream_kernels(reading),
        "tracks": build(lambda: build_tracks(reading)),
        "counters": build(lambda: build_counters(reading)),
        "memory": lambda: stream_memory(reading),
        "collectives": build(lambda: build_collectives(reading)),
    }


def count_events(stream: EventStream, trace: Trace) -> dict[str, int]:
    """Count what became of the events of the file: every one is in exactly one of these, `lost` being the dropped."""
    log = trace.log
    return {
        "slices": log.slices,
        "counters": len(log.counters[0]),
        "memory": len(log.memory["time_ns"]),
        "flows": log.counts.flows,
        "metadata": log.counts.metadata,
        "profiler_spans": log.counts.profiler_spans,
        "lost": _count_lost(stream.damage, log),
        "rounded": log.counts.rounded,
        "duplicates": log.duplicates,
        "unmeasured": log.counts.unmeasured,
        "repaired_chunks": stream.damage.repaired,
        "args_dropped": log.args.dropped,
    }


def _count_lost(damage: Damage, log: Log) -> int:
    return damage.lost + log.counts.lost + log.counts.untimed + log.count_unclosed()


def _explain_empty(path: Path, damage: Damage, untimed: int) -> str:
    if damage.first_fault:
        return f"{path} cannot be read: {damage.first_fault}"
    if untimed:
        return f"{path} is a trace without an event that has a time ({untimed} have none that can be true)"
    if damage.cut_short:
        return f"{path} ends before its first event ({damage.cut_short})"
    return f"{path} is a trace without a single event"


def _list_losses(damage: Damage, log: Log) -> list[str]:
    """Return what is missing of the file, each as a clause; each has a warning of its own."""
    lost = _count_lost(damage, log)
    cut = [f"the file was cut off ({damage.cut_short})"] if damage.cut_short else []
    return [*cut, *([f"{format_number_of(lost, 'event')} could not be read or cannot be true"] if lost else [])]


def _describe_damage(damage: Damage, log: Log) -> list[Warn]:
    warnings = []
    if damage.cut_short:
        text = f"The trace file was cut off ({damage.cut_short}); everything before the cut is here."
        warnings.append(Warn("trace_cut_off", text))
    if damage.repaired:
        text = f"The trace file is not valid JSON and was mended while reading; first fault at {damage.first_fault}."
        warnings.append(Warn("trace_repaired", text))
    if damage.lost:
        text = f"Left out: {format_number_of(damage.lost, 'event')} that could not be read; first fault at {damage.first_fault}."
        warnings.append(Warn("trace_events_unreadable", text))
    if log.counts.untimed:
        text = (
            f"Left out: {format_number_of(log.counts.untimed, 'event')} whose time or length cannot be true: there is none, it is "
            "no number, or it lies a year or more from the rest of the trace."
        )
        warnings.append(Warn("trace_events_untimed", text))
    unread = log.counts.lost + log.count_unclosed()
    if unread:
        text = (
            f"Not shown: {format_number_of(unread, 'event')} of kinds that make no slice, or that begin without an end."
        )
        warnings.append(Warn("trace_events_unknown", text))
    if log.args.dropped:
        text = (
            f"The arguments of {format_number_of(log.args.dropped, 'event')} are not kept: together they are too large."
        )
        warnings.append(Warn("trace_args_dropped", text))
    return warnings


FORMAT = KinetoFormat()
