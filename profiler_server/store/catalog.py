"""The runs below a base directory, newest first, read again only where a file changed."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collector.format.finding import find_run, locate_run, name_run
from collector.format.run import Run, open_run
from collector.format.scan import Scan, scan_base
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError, StepscopeError
from profiler_server.store.cache.stamp import Stamp, stamp_run
from profiler_server.store.headline import Headline, RunEntry, read_headline
from profiler_server.store.traces import TraceFile, TraceFinder, leave_imported

SCAN_INTERVAL_S = 2.0
CLEAR_STEPS = 50
CLEAR_FRAC = 0.1
"""Two runs of one script on one machine differ by so much, and by more where they are short."""
_TRAILING_NUMBER = re.compile(r"[-_. ]*[0-9]+$")


@dataclass(frozen=True)
class Unreadable:
    """Something that looks like a run and cannot be shown, with a sentence that says why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """All runs, newest first. `cut` says where the search for them stopped, empty when it did not.

    `traces` are files that begin like a trace and that no run was made of.
    """

    runs: tuple[RunEntry, ...]
    unreadable: tuple[Unreadable, ...]
    cut: str
    traces: tuple[TraceFile, ...] = ()

    def find(self, run_id: str) -> RunEntry | None:
        return next((entry for entry in self.runs if entry.id == run_id), None)


class Catalog:
    """Find and open the runs below a base directory. Safe to use from several threads."""

    def __init__(self, base_dir: Path) -> None:
        self.base_dir = base_dir.resolve()
        self._lock = threading.Lock()
        self._scanned = float("-inf")
        self._scan = Scan((), (), "")
        self._finder = TraceFinder()
        self._traces: tuple[TraceFile, ...] = ()
        self._entries: dict[Path, tuple[Stamp, RunEntry | Unreadable]] = {}

    def list_runs(self) -> Listing:
        """Return every run. The tree is walked again after two seconds, a run read again when its files changed."""
        with self._lock:
            if time.monotonic() - self._scanned > SCAN_INTERVAL_S:
                self._scan = scan_base(self.base_dir)
                self._traces = self._finder.find(self._scan.json_files)
                self._scanned = time.monotonic()
            paths = self._scan.paths
            self._entries = {path: self._entries[path] for path in paths if path in self._entries}
            found = [entry for path in paths if (entry := self._read_entry(path)) is not None]
            traces = self._traces
        runs = [entry for entry in found if isinstance(entry, RunEntry)]
        unreadable = [entry for entry in found if isinstance(entry, Unreadable)]
        unreadable += [Unreadable(self.name_path(path), reason) for path, reason in self._scan.refused]
        runs.sort(key=lambda entry: (-entry.manifest.created_unix_ns, entry.id))
        return Listing(_compare_to_previous(runs), tuple(unreadable), self._scan.cut, leave_imported(traces, runs))

    def find_baseline(self, run_id: str) -> str | None:
        """Return the id of the run that a run tries to improve: the one it names, or else the one before of its script."""
        entry = self.list_runs().find(run_id)
        if entry is None:
            return None
        named = entry.manifest.options.get("baseline")
        if not isinstance(named, str) or not named:
            return entry.previous_id
        path = Path(named)
        for name in ([self.name_path(path)] if path.is_relative_to(self.base_dir) else []) + [path.name]:
            with contextlib.suppress(RunNotFoundError):
                found = self.name_path(find_run(self.base_dir, name))
                return found if found != run_id else None
        return None

    def look_again(self) -> None:
        """Walk the tree for the next list, however short ago the last walk was."""
        with self._lock:
            self._scanned = float("-inf")

    def open(self, run_id: str) -> Run:
        """Open a run by its id. Raises RunNotFoundError for an id that names nothing below the base directory."""
        return open_run(self.locate(run_id))

    def find(self, name: str) -> Run:
        """Open a run by its id, or else the one of that name. Raises RunNotFoundError for none, and for several."""
        return open_run(find_run(self.base_dir, name))

    def locate(self, run_id: str) -> Path:
        """Return the directory of an id. Raises RunNotFoundError if it is no run, or lies outside the base directory."""
        return locate_run(self.base_dir, run_id)

    def name_path(self, path: Path) -> str:
        """Return the id of a directory below the base directory."""
        return name_run(self.base_dir, path)

    def _read_entry(self, path: Path) -> RunEntry | Unreadable | None:
        stamp = stamp_run(path)
        known = self._entries.get(path)
        recording = known is not None and isinstance(known[1], RunEntry) and known[1].state == "recording"
        if known is not None and known[0] == stamp and not recording:
            return known[1]
        run_id = self.name_path(path)
        entry: RunEntry | Unreadable
        try:
            run = open_run(self.locate(run_id))
            entry = RunEntry(run_id, path, run.manifest, read_headline(run))
        except RunNotFoundError:
            if not layout.run_file(path).exists():
                return None  # it vanished between the walk and now
            entry = Unreadable(run_id, "Its files are links that lead out of the base directory.")
        except (StepscopeError, OSError) as error:
            entry = Unreadable(run_id, str(error))
        self._entries[path] = (stamp, entry)
        return entry


def _compare_to_previous(newest_first: Sequence[RunEntry]) -> tuple[RunEntry, ...]:
    """Set against each run the next older one of the same script and name stem, where both have steps.

    Imported traces name no script and are as often ranks of one job as runs of one training: nothing precedes them.
    """
    previous: dict[tuple[str, str], RunEntry] = {}
    compared: list[RunEntry] = []
    for entry in reversed(newest_first):
        if entry.manifest.source != "collector":
            compared.append(entry)
            continue
        family = (entry.manifest.script, _TRAILING_NUMBER.sub("", entry.name))
        before = previous.get(family)
        step_ns = entry.headline.step_p50_ns
        if before is not None and step_ns and before.headline.step_p50_ns:
            change_frac = step_ns / before.headline.step_p50_ns - 1.0
            is_clear = _is_clear(before.headline, entry.headline, change_frac)
            entry = replace(entry, previous_id=before.id, delta_frac=change_frac, delta_is_clear=is_clear)
        if step_ns:
            previous[family] = entry
        compared.append(entry)
    return tuple(reversed(compared))


def _is_clear(before: Headline, after: Headline, change_frac: float) -> bool:
    """Say whether the median step changed by more than noise: within the runs, and of one process to the next."""
    if min(before.steps, after.steps) < CLEAR_STEPS or abs(change_frac) <= CLEAR_FRAC:
        return False
    noise_ns = math.hypot(before.step_noise_ns or 0.0, after.step_noise_ns or 0.0)
    return abs(change_frac) * (before.step_p50_ns or 0.0) > noise_ns
