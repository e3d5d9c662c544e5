"""Walk a base directory for runs, within bounds and without following links."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from collector.schema import layout

DEPTH_LIMIT = 8
FOLDER_LIMIT = 50_000
RUN_LIMIT = 10_000
TRACE_LIMIT = 100
TRACE_SUFFIXES = (".trace.json", ".json.gz")
"""Plain .json files are too often something else; `profiler-server import` takes them by name."""
SKIPPED_NAMES = frozenset({"node_modules", "__pycache__", "lost+found"})


@dataclass(frozen=True)
class Scan:
    """`paths` are directories that hold `profiler/run.json`; `refused` are folders that could not be listed, with why.

    `cut` says in a sentence where the walk stopped, empty when it saw everything. `traces` are files that torch.profiler
    wrote and that lie outside of runs.
    """

    paths: tuple[Path, ...]
    refused: tuple[tuple[Path, str], ...]
    cut: str
    traces: tuple[Path, ...] = ()


def scan_base(base_dir: Path) -> Scan:
    """Find every run below base_dir, base_dir included, nearest first. Links to folders are not followed."""
    paths: list[Path] = []
    refused: list[tuple[Path, str]] = []
    traces: list[Path] = []
    queue = deque([(base_dir, 0)])
    seen, too_deep = 0, False
    while queue and seen < FOLDER_LIMIT and len(paths) < RUN_LIMIT:
        folder, depth = queue.popleft()
        seen += 1
        if layout.run_file(folder).is_file():
            paths.append(folder)
        try:
            inner, found = _list_folder(folder)
        except OSError as error:
            refused.append((folder, f"This folder cannot be listed: {error.strerror or error}."))
            continue
        traces += found[: TRACE_LIMIT - len(traces)]
        if depth < DEPTH_LIMIT:
            queue.extend((path, depth + 1) for path in inner)
        else:
            too_deep = too_deep or bool(inner)
    return Scan(tuple(paths), tuple(refused), _explain_cut(bool(queue), too_deep), tuple(traces))


def _list_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders to walk into and the traces, each in order."""
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
    skipped = {layout.PROFILER_FOLDER, *SKIPPED_NAMES}
    inner = sorted(
        Path(entry.path) for entry in shown if entry.is_dir(follow_symlinks=False) and entry.name not in skipped
    )
    traces = (entry for entry in shown if entry.name.endswith(TRACE_SUFFIXES) and entry.is_file(follow_symlinks=False))
    return inner, sorted(Path(entry.path) for entry in traces)


def _explain_cut(stopped: bool, too_deep: bool) -> str:
    if stopped:
        return f"The search stopped after {FOLDER_LIMIT:,} folders or {RUN_LIMIT:,} runs; serve a folder further down."
    return f"Folders more than {DEPTH_LIMIT} levels down were not searched." if too_deep else ""
