"""The runs below a base directory, newest first. A run is read again only after a file changed."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from collector.format.attempts import Attempt, find_home, group_attempts, list_jobs_of_place, read_run_manifest
from collector.format.finding import Scan, find_run, locate_run, name_run, scan_base
from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import RunError, RunNotFoundError, StepscopeError
from collector.format.schema.manifest import RunManifest
from profiler_server.derive.background import Background
from profiler_server.derive.records import Summaries, Summary
from profiler_server.derive.stamps import Stamp, stamp_run
from profiler_server.store.headline import Headline, RunEntry, read_headline
from profiler_server.store.mirror import find_mirror

SCAN_INTERVAL_S = 2.0
SLICE_S = 0.1
"""Seconds for which the background reads runs before a request for the list gets its turn."""
WORTH_KEEPING = 50
"""Number of new summaries that are worth writing to the file of summaries."""
CLEAR_STEPS = 50
CLEAR_FRAC = 0.1
"""Largest relative difference between two runs of one script on one machine that counts as noise. Short runs differ by
more."""
KNOWN_CHANGES = 4
"""Least number of earlier changes between runs with which the usual change on this machine counts as known."""
CLEAR_RATIO = 3.0
"""Multiple of the median earlier change above which a change is clear: some two standard deviations."""
_MOST_BESIDE = 1_000
"""Folders beside a run of which run.json is read."""
_MOST_READ = 10
"""Runs whose steps are read to find one with steps."""
_TRAILING_NUMBER = re.compile(r"[-_. ]*[0-9]+$")


@dataclass(frozen=True)
class Unreadable:
    """A folder that looks like a run and cannot be shown. `reason` is a sentence."""

    id: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """All runs, newest first. `cut` is a sentence on where the search for runs stopped early, "" if the search was
    complete.

    `unread` is the number of runs whose files were not read yet. Until all are read, no run is compared with its
    predecessor.
    """

    runs: tuple[RunEntry, ...]
    unreadable: tuple[Unreadable, ...]
    cut: str
    unread: int = 0

    def find(self, run_id: str) -> RunEntry | None:
        return next((entry for entry in self.runs if entry.id == run_id), None)


@dataclass(frozen=True)
class RunSummary:
    """The figures of one run in the list of runs, as they are kept on disk."""

    manifest: RunManifest
    headline: Headline


class Catalog:
    """The runs below a base directory, found and read as needed. Several threads may use one catalog."""

    def __init__(self, base_dir: Path) -> None:
        self.base_dir = base_dir.resolve()
        self._mirror = find_mirror(self.base_dir)
        self._lock = threading.Lock()
        self._scanned = float("-inf")
        self._scan = Scan((), (), "")
        self._entries: dict[Path, tuple[Stamp, RunEntry | Unreadable]] = {}
        self._latest: tuple[float, Listing] | None = None
        self._summaries: Summaries[RunSummary] = Summaries(self.base_dir, RunSummary)
        self._kept: Mapping[str, Summary[RunSummary]] | None = None
        self._worth_keeping = 0
        self._background = Background()
        self._is_closing = False

    def list_runs(self, within_s: float = math.inf) -> Listing:
        """Return all runs. The folders are searched again after two seconds. A run is read again if its files changed.

        New runs that cannot be read within `within_s` seconds are listed without figures, and read in the background.
        """
        asked_s = time.monotonic()
        with self._lock:
            if self._latest is not None and self._latest[0] >= asked_s and not self._latest[1].unread:
                return self._latest[1]  # another request computed it while this request waited
            begun_s = time.monotonic()
            self._walk()
            unread = self._read_until(self._find_unread(), begun_s + within_s)
            listing = self._make_listing(unread)
            self._latest = begun_s, listing
        if unread or self._worth_keeping >= WORTH_KEEPING:
            self._background.start("rest", self._read_rest)
        return listing

    def close(self) -> None:
        """Stop reading runs in the background."""
        self._is_closing = True

    def find_baseline(self, run_id: str) -> str | None:
        """Return the id of the run with which the run `run_id` is compared; None if there is no such run.

        The option `baseline` of `run_id` names that other run. By default, it is the previous run of the same script.
        """
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

    def name_base(self) -> str:
        """Return text that names the base directory: its path, or the URL that it mirrors."""
        return self._mirror.url if self._mirror is not None else str(self.base_dir)

    def look_again(self) -> None:
        """Make the next `list_runs` search the folders, even if the last search was less than two seconds ago."""
        with self._lock:
            self._scanned = float("-inf")

    def open(self, run_id: str) -> Run:
        """Open a run by its id. Raises RunNotFoundError if no run below the base directory has this id."""
        return open_run(self.locate(run_id))

    def locate(self, run_id: str) -> Path:
        """Return the folder of a run by its id. Raises RunNotFoundError if no run below the base directory has it."""
        return locate_run(self.base_dir, run_id)

    def name_path(self, path: Path) -> str:
        """Return the id of the run in a folder below the base directory."""
        return name_run(self.base_dir, path)

    def _walk(self) -> None:
        if time.monotonic() - self._scanned > SCAN_INTERVAL_S:
            if self._mirror is not None:
                self._mirror.refresh()
            self._scan = scan_base(self.base_dir)
            self._scanned = time.monotonic()
        there = set(self._scan.paths)
        self._entries = {path: entry for path, entry in self._entries.items() if path in there}

    def _find_unread(self) -> list[Path]:
        """Read known runs again if their files changed. Return the paths of the new runs, last changed first."""
        if self._kept is None:
            self._kept = self._summaries.read()
        unread = [path for path in self._scan.paths if not self._refresh(path)]
        return sorted(unread, key=_find_changed_ns, reverse=True)

    def _refresh(self, path: Path) -> bool:
        known = self._entries.get(path)
        kept = self._kept.get(self.name_path(path)) if known is None and self._kept else None
        if known is None and kept is None:
            return False
        stamp = stamp_run(path)
        if known is None and kept is not None:
            if kept.stamp != stamp:
                return False
            value = kept.value
            self._entries[path] = stamp, RunEntry(self.name_path(path), path, value.manifest, value.headline)
        elif known is not None and (known[0] != stamp or _is_recording(known[1])):
            self._read_entry(path, stamp)
        return True

    def _read_until(self, unread: Sequence[Path], deadline_s: float) -> Sequence[Path]:
        """Read new runs one by one until a deadline. Return the paths of the runs that are still unread."""
        for index, path in enumerate(unread):
            if time.monotonic() > deadline_s:
                return unread[index:]
            self._read_entry(path, stamp_run(path))
            self._worth_keeping += 1
        return ()

    def _read_rest(self) -> None:
        """Read the remaining new runs in turns, between requests for the list. Then write the summaries to disk."""
        with self._lock:
            unread: Sequence[Path] = self._find_unread()
        while unread and not self._is_closing:
            with self._lock:
                unread = self._read_until(unread, time.monotonic() + SLICE_S)
            time.sleep(SLICE_S / 4)
        with self._lock:
            entries = [(stamp, entry) for stamp, entry in self._entries.values() if isinstance(entry, RunEntry)]
            is_new, self._worth_keeping = self._worth_keeping >= WORTH_KEEPING, 0
        if is_new:
            self._summaries.write(
                (entry.id, Summary(stamp, RunSummary(entry.manifest, entry.headline)))
                for stamp, entry in entries
                if not _is_recording(entry)
            )

    def _make_listing(self, unread: Sequence[Path]) -> Listing:
        found = [self._entries[path][1] for path in self._scan.paths if path in self._entries]
        unreadable = [entry for entry in found if isinstance(entry, Unreadable)]
        unreadable += [Unreadable(self.name_path(path), reason) for path, reason in self._scan.refused]
        runs = [entry for entry in found if isinstance(entry, RunEntry)]
        runs += [_announce(self.name_path(path), path) for path in unread]
        runs.sort(key=lambda entry: (-entry.manifest.created_unix_ns, entry.id))
        cut = (self._mirror.cut if self._mirror is not None else "") or self._scan.cut
        runs = _count_attempts(runs)
        if unread:
            return Listing(tuple(runs), tuple(unreadable), cut, len(unread))
        return Listing(_compare_to_previous(runs), tuple(unreadable), cut)

    def _read_entry(self, path: Path, stamp: Stamp) -> None:
        self._entries.pop(path, None)
        run_id = self.name_path(path)
        entry: RunEntry | Unreadable
        try:
            run = open_run(self.locate(run_id))
            entry = RunEntry(run_id, path, run.manifest, read_headline(run))
        except RunNotFoundError:
            if not os.path.exists(layout.run_file(path)):
                return  # the run vanished between the walk and now
            entry = Unreadable(run_id, "Its folder is reached by a link that leads out of the base directory.")
        except (StepscopeError, OSError) as error:
            entry = Unreadable(run_id, str(error))
        self._entries[path] = (stamp, entry)


def _count_attempts(runs: Sequence[RunEntry]) -> list[RunEntry]:
    jobs = group_attempts(Attempt(entry.manifest.attempt, entry.path, entry.manifest) for entry in runs)
    counts = {attempt.path: job[-1].number for job in jobs for attempt in job}
    return [replace(entry, attempts=counts[entry.path]) if counts[entry.path] > 1 else entry for entry in runs]


def _is_recording(entry: RunEntry | Unreadable) -> bool:
    return isinstance(entry, RunEntry) and entry.state == "recording"


def _find_changed_ns(path: Path) -> int:
    try:
        return layout.run_file(path).stat().st_mtime_ns
    except OSError:
        return 0


def _announce(run_id: str, path: Path) -> RunEntry:
    changed_ns = _find_changed_ns(path)
    manifest = RunManifest(run_id, path.name, changed_ns, changed_ns, "collector", 1, "")
    return RunEntry(run_id, path, manifest, Headline("complete", (), 0, None, None), is_read=False)


def _compare_to_previous(newest_first: Sequence[RunEntry]) -> tuple[RunEntry, ...]:
    """Return the runs, newest first, each compared with the next older run of the same family (`find_family`).

    A restart of the same job is not compared, and neither is a run without steps. Imported traces are not compared,
    because they name no script. Often they are ranks of one job rather than runs of one training.
    """
    previous: dict[tuple[str, str], RunEntry] = {}
    changes: dict[tuple[str, str], list[float]] = {}
    compared: list[RunEntry] = []
    for entry in reversed(newest_first):
        if entry.manifest.is_imported:
            compared.append(entry)
            continue
        family = find_family(entry.manifest.script, entry.name)
        before = previous.get(family)
        step_ns = entry.headline.step_p50_ns
        is_again = before is not None and is_same_job(before.manifest, entry.manifest)
        if before is not None and not is_again and step_ns and before.headline.step_p50_ns:
            change_frac = step_ns / before.headline.step_p50_ns - 1.0
            mean_frac = _find_opposite_mean(before.headline, entry.headline, change_frac)
            known = changes.setdefault(family, [])
            is_clear = mean_frac is None and _is_clear(before.headline, entry.headline, change_frac)
            # Beyond this change of the logarithm a run stands out from the changes before it.
            usual = CLEAR_RATIO * median(known) if len(known) >= KNOWN_CHANGES else 0.0
            is_clear = is_clear and abs(math.log1p(change_frac)) > usual
            known.append(abs(math.log1p(change_frac)))
            entry = replace(
                entry,
                previous_id=before.id,
                delta_frac=change_frac,
                delta_is_clear=is_clear,
                mean_delta_frac=mean_frac,
            )
        if step_ns:
            previous[family] = entry
        compared.append(entry)
    return tuple(reversed(compared))


def find_family(script: str, name: str) -> tuple[str, str]:
    """Return a key that is the same for all runs of one training: script, and name without a number at its end."""
    return script, _TRAILING_NUMBER.sub("", name)


def is_same_job(before: RunManifest, after: RunManifest) -> bool:
    """Return whether `after` is a restart of the job of `before`, so that the user changed nothing in between."""
    return bool(after.job_id) and before.job_id == after.job_id and before.attempt < after.attempt


def _is_clear(before: Headline, after: Headline, change_frac: float) -> bool:
    """Return whether the median step changed by more than noise: that within the two runs, and that between any two
    runs.

    False if one of the runs has fewer than CLEAR_STEPS steps."""
    if min(before.steps, after.steps) < CLEAR_STEPS or abs(change_frac) <= CLEAR_FRAC:
        return False
    return abs(change_frac) * (before.step_p50_ns or 0.0) > _find_noise_ns(before, after)


def _find_noise_ns(before: Headline, after: Headline) -> float:
    return math.hypot(before.step_noise_ns or 0.0, after.step_noise_ns or 0.0)


def _find_opposite_mean(before: Headline, after: Headline, change_frac: float) -> float | None:
    if not before.step_mean_ns or not after.step_mean_ns:
        return None
    change_ns = after.step_mean_ns - before.step_mean_ns
    is_opposite = change_ns * change_frac < 0 and abs(change_ns) > _find_noise_ns(before, after)
    return change_ns / before.step_mean_ns if is_opposite else None


def find_earlier_beside(run: Run) -> Run | None:
    """Return the newest older run of the same script with steps, at the same path or beside `run`; None without one.

    If the option `baseline` of the run names a run in the same folder, return that run instead.
    """
    try:
        named = run.manifest.options.get("baseline")
        home = find_home(run.path.absolute())
        if isinstance(named, str) and named:
            paths = [home.parent / Path(named).name]
        else:
            found = sorted(_list_before(run.manifest, home), key=lambda entry: -entry[1].created_unix_ns)
            paths = [path for path, _ in found[:_MOST_READ]]
    except (RunError, OSError, ValueError):
        return None
    return next((each for path in paths if (each := _open_with_steps(path, run.path)) is not None), None)


def _list_before(own: RunManifest, home: Path) -> Iterator[tuple[Path, RunManifest]]:
    folders = [path for path in home.parent.iterdir() if path != home][:_MOST_BESIDE]
    beside = [(path, manifest) for path in folders if (manifest := read_run_manifest(path)) is not None]
    at_place = [(each.path, each.manifest) for job in list_jobs_of_place(home) for each in job]
    for path, manifest in (*at_place, *beside):
        is_alike = find_family(manifest.script, manifest.name) == find_family(own.script, own.name)
        is_before = manifest.created_unix_ns < own.created_unix_ns and not is_same_job(manifest, own)
        if is_alike and is_before and not manifest.is_imported:
            yield path, manifest


def _open_with_steps(path: Path, other_than: Path) -> Run | None:
    if path.is_symlink() or path.absolute() == other_than.absolute():
        return None
    try:
        run = open_run(path)
        return run if read_headline(run).step_p50_ns else None
    except RunError:
        return None
