"""The Memory page of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collector.format.lens import parse_range
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import encode_manifest
from profiler_server.page import PageRequest
from profiler_server.pages.memory import MemoryPage, build


def show(path: Path, steps: str = "", **query: str) -> MemoryPage:
    return build(PageRequest(open_run(path), path.name, 0, (0,), query, parse_range(steps)))


def change_manifest(path: Path, **fields: object) -> None:
    manifest = dataclasses.replace(open_run(path).rank(0).manifest, **fields)  # type: ignore[arg-type]
    layout.rank_file(path, 0).write_text(encode_manifest(manifest), encoding="utf-8")
