"""Make a run from trace files: read each file, find its rank, write its tables, and move the finished run to its path."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import OutputError, TraceError
from collector.format.schema.manifest import RunManifest, Warn, encode_manifest
from collector.format.schema.modes import align_all, find_run_mode
from collector.format.schema.removal import Marked, make_folder, move, remove_tree, scratch_folder
from collector.format.schema.writing import sync_parents, sync_tree
from collector.traces.format import Progress, ReadOptions, TraceFacts, ignore
from collector.traces.limits import ReadLimits
from collector.traces.reading import FORMATS, describe_suffixes, is_trace_name
from collector.traces.staging import (
    ShiftTask,
    StagedRank,
    StagingTask,
    place_rank,
    shift_rank,
    stage_trace,
    warn_of_rank,
)
from collector.traces.workers import Here, Workers
from collector.version import __version__

CLOCKS_APART_NS = 10**9
"""The greatest difference between two hosts' clocks: traces further apart were not taken at the same time."""

# What tensorboard_trace_handler writes: <host>_<pid>.<time>.pt.trace.json
_OF_PROCESS = re.compile(r"(?P<process>.+_\d+)\.\d+\.pt\.trace\.json(\.gz)?$")


@dataclass(frozen=True)
class Placed:
    rank: int
    path: Path
    facts: TraceFacts

    @property
    def start_ns(self) -> int:
        return self.facts.epoch_unix_ns

    @property
    def end_ns(self) -> int:
        return self.facts.epoch_unix_ns + self.facts.end_ns


@dataclass
class Placing:
    """The assignment of a rank to each trace of a run. `files` is the number of the run's files."""

    files: int
    ranks: dict[int, Placed] = field(default_factory=dict)
    _processes: dict[str, Placed] = field(default_factory=dict)
    _first_to_end: Placed | None = None
    _last_to_start: Placed | None = None
    _untold: Placed | None = None

    def add(self, path: Path, facts: TraceFacts) -> Placed:
        """Return a trace with its rank: the rank in its facts, or the next number in the order of files.

        Raises TraceError if the rank is taken, or if a trace without a rank cannot belong to one job with another
        trace: both are of the same process, or were taken at different times.
        """
        rank = facts.rank
        if rank is None:
            rank = 0 if self.files == 1 else len(self.ranks)
        placed = Placed(rank, path, facts)
        if facts.rank is None or self._untold is not None:
            self._untold = self._untold or placed
            self._check_process(placed)
            self._check_time(placed)
        if rank in self.ranks:
            raise TraceError(f"{path} and {self.ranks[rank].path} are both of rank {rank}; import them as two runs")
        self._remember(placed)
        return placed

    def _check_process(self, placed: Placed) -> None:
        same = self._processes.get(name_process(placed.path) or "")
        if same is not None and same.path != placed.path:
            raise TraceError(_explain(same, placed, "were recorded by one process one after the other"))

    def _check_time(self, placed: Placed) -> None:
        if not placed.facts.absolute:
            return
        for other in (self._first_to_end, self._last_to_start):
            if other is None:
                continue
            earlier, later = sorted((other, placed), key=lambda one: one.start_ns)
            if later.start_ns > earlier.end_ns + CLOCKS_APART_NS:
                raise TraceError(_explain(earlier, later, "were not recorded at the same time"))

    def _remember(self, placed: Placed) -> None:
        self.ranks[placed.rank] = placed
        process = name_process(placed.path)
        if process is not None:
            self._processes.setdefault(process, placed)
        if placed.facts.absolute:
            self._first_to_end = min(self._first_to_end or placed, placed, key=lambda one: one.end_ns)
            self._last_to_start = max(self._last_to_start or placed, placed, key=lambda one: one.start_ns)


def name_process(path: Path) -> str | None:
    """Return host and process from a file name that a trace handler gave, None for another name."""
    match = _OF_PROCESS.match(path.name)
    return match["process"] if match else None


def _explain(one: Placed, other: Placed, why: str) -> str:
    both = f"{one.path} and {other.path}"
    return f"{both} {why} and do not both say a rank, so they are no ranks of one job; import them one by one"


_MOST_FILES = 100_000
_MOST_LISTED = 1_000
_STAGED, _RUN = ".staged", "run"
_IS_STAGED = Marked(re.compile(re.escape(_STAGED)))
_LONGEST_NAME = 50
_READ_FRAC = 0.85
"""The fraction of the import time of several files that reading takes; the rest shifts their times to one epoch."""


def import_trace(
    paths: str | Path | Sequence[str | Path],
    run_path: str | Path,
    *,
    name: str | None = None,
    steps_from: str | None = None,
    on_progress: Progress | None = None,
    limits: ReadLimits | None = None,
) -> Run:
    """Make a run at `run_path` from one trace, from one trace per rank, or from a folder of such traces.

    Files in a folder that no format knows are skipped, with a warning in the run. `steps_from` selects the marks of
    steps: `optimizer`, `whole`, or a regular expression for slice names. `limits` bound the unpacked size of a file and
    the total time. A failure leaves nothing behind, and an existing run is not touched. Raises TraceError for a file
    that cannot be read, for two files of the same rank and for files that cannot be ranks of one job; OutputError if
    the run cannot be written.
    """
    how = Importing(name, steps_from, on_progress, limits or ReadLimits())
    return import_traces([paths] if isinstance(paths, (str, Path)) else list(paths), run_path, how)


@dataclass(frozen=True)
class Importing:
    """Settings of an import. `workers` read files at the same time; by default, this process reads them one by one.

    `scratch` is an empty folder on the run's disk, removed by its maker; by default a folder beside the run.
    """

    name: str | None = None
    steps_from: str | None = None
    on_progress: Progress | None = None
    limits: ReadLimits = field(default_factory=ReadLimits)
    workers: Workers = field(default_factory=Here)
    scratch: Path | None = None


def import_traces(paths: Sequence[str | Path], run_path: str | Path, how: Importing) -> Run:
    """Make a run from traces, as `import_trace`."""
    files = list_files(paths)
    target = Path(run_path).expanduser().absolute()
    if layout.profiler_path(target).exists():
        raise OutputError(f"{target} holds a run already; choose another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        own = scratch_folder(f".{target.name[:_LONGEST_NAME]}.", target.parent)
        with nullcontext(how.scratch) if how.scratch is not None else own as scratch:
            options = ReadOptions(
                steps_from=how.steps_from,
                scratch=scratch,
                on_progress=how.on_progress or ignore,
                limits=how.limits.begin(),
                helpers=how.workers.helpers,
            )
            make_folder(scratch / _RUN, mode=find_run_mode(target))
            sure = frozenset(Path(path).expanduser() for path in paths)
            _write_run(_Files(tuple(files), sure), scratch, how.name or target.name, options, how.workers)
            _move(scratch / _RUN, target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from None
    return open_run(target)


def list_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the trace files of the given files and folders, in order.

    Raises TraceError for a missing path, a folder without trace files, no file at all, and too many files.
    """
    files: list[Path] = []
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            found = [p for p in path.iterdir() if is_trace_name(p.name) and not p.name.startswith(".")]
            found.sort(key=lambda p: _order_name(p.name))
            if not found:
                raise TraceError(f"{path} is a folder without a trace file ({describe_suffixes()})")
            files.extend(found)
        elif path.exists():
            files.append(path)
        else:
            raise TraceError(f"{path} does not exist")
    if not files:
        raise TraceError("no trace file was given")
    if len(files) > _MOST_FILES:
        raise TraceError(f"{len(files)} trace files are more than one run may have ({_MOST_FILES})")
    return files


def _order_name(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts worker2 before worker10. Files without a rank get their ranks in this order."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d{1,18})", name)]


@dataclass(frozen=True)
class _Files:
    """The files of an import: files in `sure` were given by name and must be traces, the others lie in a given folder."""

    paths: tuple[Path, ...]
    sure: frozenset[Path]


def _write_run(listed: _Files, scratch: Path, name: str, options: ReadOptions, workers: Workers) -> None:
    started, run_path, source = time.time_ns(), scratch / _RUN, ""
    placing, files = Placing(len(listed.paths)), list[Path]()
    read_frac = _READ_FRAC if len(listed.paths) > 1 else 1.0
    reading = replace(options, on_progress=_part(options.on_progress, 0.0, read_frac))
    for path, staged in zip(listed.paths, _stage(listed, scratch / _STAGED, reading, started, workers), strict=True):
        options.limits.check(path)
        if not staged:
            continue
        files.append(path)
        for one in staged:
            place_rank(one, run_path, placing.add(one.path, one.facts).rank)
        source = source or staged[0].source
    remove_tree(scratch / _STAGED, _IS_STAGED)
    if not files:
        names = ", ".join(kind.name for kind in FORMATS)
        raise TraceError(f"none of the {len(listed.paths)} files is a trace that Stepscope knows ({names})")
    ranks = list(placing.ranks.values())
    _warn_of_skipped(run_path, ranks[0].rank, len(listed.paths) - len(files))
    epoch_ns = _align(run_path, ranks, workers, _part(options.on_progress, read_frac, 1.0))
    facts = ranks[0].facts
    world_size = _agree_on_size(run_path, ranks)
    manifest = RunManifest(
        id=name,
        name=name,
        created_unix_ns=epoch_ns if all(rank.facts.absolute for rank in ranks) else started,
        epoch_unix_ns=epoch_ns,
        source=source,
        world_size=max(len(ranks), world_size),
        host="",
        stepscope=__version__,
        cuda=facts.versions.get("cuda_runtime_version"),
        metadata={
            "files": [path.name for path in files[:_MOST_LISTED]],
            "versions": facts.versions,
        },
    )
    layout.run_file(run_path).write_text(encode_manifest(manifest), encoding="utf-8")


def _warn_of_skipped(run_path: Path, rank: int, count: int) -> None:
    if count:
        text = (
            f"{count:,} {'file' if count == 1 else 'files'} of the folder {'is' if count == 1 else 'are'} no trace that "
            "Stepscope knows and left out of this run."
        )
        warn_of_rank(run_path, rank, Warn("passed_over", text))


def _agree_on_size(run_path: Path, ranks: Sequence[Placed]) -> int:
    """Return the most frequent world size of the traces, 1 if none has it. Traces with another size get a warning."""
    said = Counter(size for rank in ranks if (size := rank.facts.world_size))
    if not said:
        return 1
    most = said.most_common(1)[0][0]
    for rank in ranks:
        if rank.facts.world_size not in (None, 0, most):
            text = (
                f"This trace says that its job has {rank.facts.world_size:,} ranks; the others mostly say {most:,}: it may "
                "be of another job."
            )
            warn_of_rank(run_path, rank.rank, Warn("other_world_size", text))
    return most


def _stage(
    listed: _Files, folder: Path, options: ReadOptions, started: int, workers: Workers
) -> Iterator[tuple[StagedRank, ...]]:
    """Yield the ranks of each file, in the order of the files; an empty tuple for a skipped file."""
    files = listed.paths
    if workers.are_here:
        for index, path in enumerate(files):
            shared = replace(
                options, on_progress=_part(options.on_progress, index / len(files), (index + 1) / len(files))
            )
            yield stage_trace(StagingTask(path, folder / str(index), shared, started, path in listed.sure))
        return
    # A clock of one machine says nothing on another.
    apart = replace(options, on_progress=ignore, limits=replace(options.limits, deadline_s=None))
    # Others may run in another folder.
    tasks = [
        StagingTask(path.absolute(), folder / str(index), apart, started, path in listed.sure)
        for index, path in enumerate(files)
    ]

    def tell(done: int) -> None:
        options.limits.check(files[done - 1])
        options.on_progress(done / len(files))

    yield from workers.run(stage_trace, tasks, tell)


def _align(run_path: Path, ranks: Sequence[Placed], workers: Workers, on_progress: Progress) -> int:
    """Shift the times of all ranks to the earliest epoch, and return that epoch in unix ns.

    If a rank has no wall clock, nothing is shifted.
    """
    epoch_ns = min(rank.facts.epoch_unix_ns for rank in ranks)
    known = all(rank.facts.absolute for rank in ranks)
    shifts = [
        ShiftTask(layout.rank_path(run_path, rank.rank), rank.facts.epoch_unix_ns - epoch_ns)
        for rank in ranks
        if known and rank.facts.epoch_unix_ns != epoch_ns
    ]

    for _ in workers.run(shift_rank, shifts, lambda done: on_progress(done / len(shifts))):
        pass
    if not shifts:
        on_progress(1.0)
    return epoch_ns


def _move(run_path: Path, target: Path) -> None:
    """Move the finished run to its path. Other files in an existing target stay."""
    align_all(run_path, run_path)
    sync_tree(run_path)
    if not target.exists():
        move(run_path, target)
    else:
        move(layout.profiler_path(run_path), layout.profiler_path(target))
    sync_parents(layout.profiler_path(target))


def _part(on_progress: Progress, begin: float, end: float) -> Progress:
    """Return a progress callback for one stage of an import, from fraction `begin` to `end`."""
    return lambda share: on_progress(begin + (end - begin) * share)
