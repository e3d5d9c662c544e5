"""Chrome traces as Kineto (torch.profiler) writes them."""

from __future__ import annotations

from pathlib import Path

from collector.traces.format import ReadOptions, TraceFormat, TraceTables


def read(path: Path, options: ReadOptions) -> TraceTables | None:
    from collector.traces.kineto.reader import read_events

    return read_events(path, options)


FORMAT = TraceFormat("Kineto JSON", "kineto", (".json", ".json.gz"), 1, read)
