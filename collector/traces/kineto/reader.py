"""Read a Kineto trace: decode its events, classify them, find its steps, and list the tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from collector.format.schema.errors import TraceError
from collector.format.schema.manifest import Warn
from collector.traces.format import (
    Batches,
    ReadOptions,
    StreamedTables,
    TraceFacts,
    TraceTables,
    explain_failure,
    in_batches,
)
from collector.traces.kineto import completeness, facts
from collector.traces.kineto.classify.trace import Trace, build_trace
from collector.traces.kineto.classify.tree import build_tree
from collector.traces.kineto.decode.log import Log
from collector.traces.kineto.decode.stream import EventStream, ReadAhead
from collector.traces.kineto.parallel.pool import Pool, read_ahead
from collector.traces.kineto.scratch import Scratch
from collector.traces.kineto.steps.find import find_steps
from collector.traces.kineto.steps.model import describe_steps
from collector.traces.kineto.steps.phases import expose_communication, find_phases
from collector.traces.kineto.tables.context import Reading
from collector.traces.kineto.tables.kernels import build_collectives, stream_kernels
from collector.traces.kineto.tables.memory import stream_memory
from collector.traces.kineto.tables.operators import stream_operators
from collector.traces.kineto.tables.timeline import (
    build_counters,
    build_phases,
    build_steps,
    build_tracks,
    stream_slices,
)
from collector.traces.source import Source

HELPED_BYTES = 40 << 20
"""With fewer bytes per helper process, starting a helper takes longer than it saves."""
_TABLES_AT_ONCE = 2
"""The table `slices` takes as long as all other tables together."""


def read_events(path: Path, options: ReadOptions, source: Source | None = None) -> TraceTables | None:
    """Read the text of a Kineto trace: that of `source`, by default the file at the path."""
    source = source or Source(path, options.on_progress, options.limits)
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
        raise TraceError(completeness.explain_empty(path, stream.cut_short, log.counts.untimed))
    return _build_tables(path, stream, trace, options)


def _choose_ahead(source: Source, helpers: int) -> ReadAhead | None:
    """Return a function that reads ahead, with a number of helpers that suits the file; None for a short file."""
    helpers = min(helpers, source.guess_bytes() // HELPED_BYTES)
    return partial(read_ahead, Pool(helpers)) if helpers > 0 else None


def _build_tables(path: Path, stream: EventStream, trace: Trace, options: ReadOptions) -> TraceTables:
    base_ns = facts.read_base_ns(stream.metadata)
    first_ns, last_ns = int(trace.start_ns.min()), int(trace.end_ns.max())
    epoch_ns = first_ns + base_ns if options.epoch_unix_ns is None else options.epoch_unix_ns
    with ThreadPoolExecutor(1) as thread:
        tree = thread.submit(build_tree, trace)
        if options.helpers:  # their cores are free by now
            thread.submit(lambda: trace.order)
        else:
            tree.result()
        steps = find_steps(trace, base_ns, options.steps, options.steps_from)
        phases = find_phases(trace, steps)
        phases = expose_communication(trace, steps, phases)
        findings = completeness.check_completeness(trace, options.steps.span_ns if options.steps is not None else 0)
        reading = Reading(trace, steps, phases, tree.result(), epoch_ns - base_ns)
    rank, world_size = facts.read_ranks(stream.metadata, path)
    told = TraceFacts(
        rank,
        world_size,
        facts.read_devices(stream.metadata) or facts.name_devices(trace),
        epoch_ns,
        facts.is_wall_clock(first_ns + base_ns),
        int(reading.to_run(np.array([last_ns]))[0]),
        facts.read_versions(stream.metadata),
        {
            "steps_told_by": steps.how,
            "steps_confidence_frac": steps.confidence_frac,
            "events": completeness.count_events(trace),
            "data_loader": facts.read_loader(trace.names),
            "completeness": completeness.describe_completeness(
                [*findings, *completeness.list_losses(stream.cut_short, trace.log)]
            ),
        },
    )
    warnings = [*completeness.describe_losses(stream.cut_short, trace.log)]
    if findings:
        text = f"This trace is not complete: {completeness.describe_completeness(findings)}."
        warnings.append(Warn("trace_incomplete", text))
    warnings += describe_steps(steps)
    tables = StreamedTables(_list_tables(reading), _TABLES_AT_ONCE if options.helpers else 1)
    return TraceTables(tables, told, tuple(warnings), completeness.count_lost(trace.log))


def _list_tables(reading: Reading) -> dict[str, Batches]:
    return {
        "slices": lambda: stream_slices(reading),
        "steps": in_batches(lambda: build_steps(reading)),
        "phases": in_batches(lambda: build_phases(reading)),
        "operators": lambda: stream_operators(reading),
        "kernels": lambda: stream_kernels(reading),
        "tracks": in_batches(lambda: build_tracks(reading)),
        "counters": in_batches(lambda: build_counters(reading)),
        "memory": lambda: stream_memory(reading),
        "collectives": in_batches(lambda: build_collectives(reading)),
    }
