"""Traces in Perfetto's protobuf, as torch.profiler's CUPTI back end and rocprofv3 write them."""

from __future__ import annotations

from pathlib import Path

from collector.traces.format import ReadOptions, TraceFormat, TraceTables

_SUFFIXES = (".pftrace", ".pftrace.gz")


def read(path: Path, options: ReadOptions) -> TraceTables | None:
    from collector.traces.kineto.reader import read_events
    from collector.traces.pftrace.source import PftraceSource, is_packets
    from collector.traces.source import Source

    head = next(Source(path, limits=options.limits).read_blocks(), b"")
    if not is_packets(head) and not path.name.lower().endswith(_SUFFIXES):
        return None
    return read_events(path, options, PftraceSource(path, options))


FORMAT = TraceFormat("Perfetto protobuf", "perfetto", _SUFFIXES, 2, read)
