"""Make a run from trace files: read each file, find its rank, write its tables, and move the finished run to its path."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from collector.format.packed import is_pack_name, unpack
from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import OutputError, TraceError
from collector.format.schema.manifest import RunManifest, Warn, encode_manifest
from collector.format.schema.modes import align_all, find_run_mode
from collector.format.schema.removal import Marked, make_folder, move, remove_tree, scratch_folder
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import sync_parents, sync_tree
from collector.traces.format import Progress, ReadOptions, ignore
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


@dataclass
class Placing:
    """The ranks of the traces of a run, assigned one after the other. `files` is the number of files of the run."""

    files: int
    ranks: dict[int, StagedRank] = field(default_factory=dict)
    _processes: dict[str, StagedRank] = field(default_factory=dict)
    _first_to_end: StagedRank | None = None
    _last_to_start: StagedRank | None = None
    _is_untold: bool = False

    def add(self, staged: StagedRank) -> int:
        """Return the rank of a trace: the rank in its facts, or the next number in the order of files.

        Raises TraceError if the rank is taken. Also raises TraceError if a trace without a rank and another trace
        cannot belong to one job, because both are of the same process, or were taken at different times.
        """
        rank = staged.facts.rank
        if rank is None:
            self._is_untold, rank = True, 0 if self.files == 1 else len(self.ranks)
        if self._is_untold:
            self._check_process(staged)
            self._check_time(staged)
        if rank in self.ranks:
            raise TraceError(
                f"{staged.path} and {self.ranks[rank].path} are both of rank {rank}; import them as two runs"
            )
        self._remember(rank, staged)
        return rank

    def _check_process(self, staged: StagedRank) -> None:
        same = self._processes.get(name_process(staged.path) or "")
        if same is not None and same.path != staged.path:
            raise TraceError(_explain(same, staged, "were recorded by one process one after the other"))

    def _check_time(self, staged: StagedRank) -> None:
        if not staged.facts.absolute:
            return
        for other in (self._first_to_end, self._last_to_start):
            if other is None:
                continue
            earlier, later = sorted((other, staged), key=lambda one: one.start_ns)
            if later.start_ns > earlier.end_ns + CLOCKS_APART_NS:
                raise TraceError(_explain(earlier, later, "were not recorded at the same time"))

    def _remember(self, rank: int, staged: StagedRank) -> None:
        self.ranks[rank] = staged
        process = name_process(staged.path)
        if process is not None:
            self._processes.setdefault(process, staged)
        if staged.facts.absolute:
            self._first_to_end = min(self._first_to_end or staged, staged, key=lambda one: one.end_ns)
            self._last_to_start = max(self._last_to_start or staged, staged, key=lambda one: one.start_ns)


def name_process(path: Path) -> str | None:
    """Return `host_pid` from the name of a file by PyTorch's tensorboard_trace_handler, None for any other name."""
    match = _OF_PROCESS.match(path.name)
    return match["process"] if match else None


def _explain(one: StagedRank, other: StagedRank, why: str) -> str:
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

    A file in a folder is skipped if no format knows it; the run then gets a warning. `steps_from` selects the marks of
    steps: `optimizer`, `whole`, or a regular expression for slice names. `limits` bound the unpacked size of a file and
    the total time. A failure leaves nothing behind, and an existing run is not touched. Raises TraceError for a file
    that cannot be read, for two files of the same rank and for files that cannot be ranks of one job; OutputError if
    the run cannot be written.
    """
    options = ReadOptions(steps_from=steps_from, on_progress=on_progress or ignore, limits=limits or ReadLimits())
    return import_traces([paths] if isinstance(paths, (str, Path)) else list(paths), run_path, options, name=name)


def import_traces(
    paths: Sequence[str | Path],
    run_path: str | Path,
    options: ReadOptions,
    workers: Workers | None = None,
    name: str | None = None,
) -> Run:
    """Make a run from traces, as `import_trace` does, or from one packed run.

    `workers` read files at the same time; by default, this process reads them one by one. `options.scratch` is an empty
    folder on the run's disk, which the caller removes; by default it is a folder beside the run.
    """
    files, workers, started = list_files(paths), workers or Here(), time.time_ns()
    target = Path(run_path).expanduser().absolute()
    packed = next((path for path in files if is_pack_name(path.name)), None)
    if packed is not None and (len(files) > 1 or options.steps_from is not None):
        raise TraceError(f"{packed} is a whole run with its steps; import it by itself, without --steps-from")
    if layout.profiler_path(target).exists():
        raise OutputError(f"{target} holds a run already; choose another name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        own = scratch_folder(f".{target.name[:_LONGEST_NAME]}.", target.parent)
        with nullcontext(options.scratch) if options.scratch is not None else own as scratch:
            options = replace(options, scratch=scratch, limits=options.limits.begin(), helpers=workers.helpers)
            make_folder(scratch / _RUN, mode=find_run_mode(target))
            sure = frozenset(Path(path).expanduser() for path in paths)
            tasks = [
                StagingTask(path, scratch / _STAGED / str(index), options, started, path in sure)
                for index, path in enumerate(files)
            ]
            if packed is not None:
                unpack(packed, scratch / _RUN, options.limits.unpacked_bytes)
            else:
                _write_run(scratch / _RUN, tasks, workers, name or target.name)
            _move(scratch / _RUN, target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from None
    return open_run(target)


def list_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the trace files of files and folders, in order. Raises TraceError if there are none or too many."""
    files: list[Path] = []
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            found = [p for p in path.iterdir() if _is_listed(p.name)]
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


def _is_listed(name: str) -> bool:
    """Return whether a file of a folder is imported: a packed run is no rank of the job whose traces lie beside it."""
    return is_trace_name(name) and not name.startswith(".") and not is_pack_name(name)


def _order_name(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts worker2 before worker10. Files without a rank get their ranks in this order."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d{1,18})", name)]


def _write_run(run_path: Path, tasks: Sequence[StagingTask], workers: Workers, name: str) -> None:
    options, source = tasks[0].options, ""
    placing, files = Placing(len(tasks)), list[Path]()
    read_frac = _READ_FRAC if len(tasks) > 1 else 1.0
    for task, staged in zip(tasks, _stage(tasks, workers, _part(options.on_progress, 0.0, read_frac)), strict=True):
        options.limits.check(task.path)
        if not staged:
            continue
        files.append(task.path)
        for one in staged:
            place_rank(one, run_path, placing.add(one))
        source = source or staged[0].source
    remove_tree(tasks[0].folder.parent, _IS_STAGED)
    if not files:
        names = ", ".join(kind.name for kind in FORMATS)
        raise TraceError(f"none of the {len(tasks)} files is a trace that Stepscope knows ({names})")
    ranks = placing.ranks
    if skipped := len(tasks) - len(files):
        which = f"{format_number_of(skipped, 'file')} of the folder {'is' if skipped == 1 else 'are'}"
        text = f"{which} no trace that Stepscope knows and left out of this run."
        warn_of_rank(run_path, next(iter(ranks)), Warn("passed_over", text))
    epoch_ns = _align(run_path, ranks, workers, _part(options.on_progress, read_frac, 1.0))
    facts = next(iter(ranks.values())).facts
    world_size = _agree_on_size(run_path, ranks)
    manifest = RunManifest(
        id=name,
        name=name,
        created_unix_ns=epoch_ns if all(rank.facts.absolute for rank in ranks.values()) else tasks[0].started_unix_ns,
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


def _agree_on_size(run_path: Path, ranks: Mapping[int, StagedRank]) -> int:
    """Return the most frequent world size of the traces, 1 without any. Traces with another size get a warning."""
    said = {number: size for number, rank in ranks.items() if (size := rank.facts.world_size)}
    if not said:
        return 1
    most = Counter(said.values()).most_common(1)[0][0]
    for number, size in said.items():
        if size != most:
            told = f"This trace says that its job has {size:,} ranks; the others mostly say {most:,}"
            warn_of_rank(run_path, number, Warn("other_world_size", f"{told}: it may be of another job."))
    return most


def _stage(tasks: Sequence[StagingTask], workers: Workers, on_progress: Progress) -> Iterator[tuple[StagedRank, ...]]:
    """Yield the ranks of each file, in the order of the files; an empty tuple for a skipped file."""
    if workers.are_here:
        for index, task in enumerate(tasks):
            share = _part(on_progress, index / len(tasks), (index + 1) / len(tasks))
            yield stage_trace(replace(task, options=replace(task.options, on_progress=share)))
        return
    limits = tasks[0].options.limits
    # A clock of one machine says nothing on another, and others may run in another folder.
    apart = replace(tasks[0].options, on_progress=ignore, limits=replace(limits, deadline_s=None))
    elsewhere = [replace(task, path=task.path.absolute(), options=apart) for task in tasks]

    def tell(done: int) -> None:
        limits.check(tasks[done - 1].path)
        on_progress(done / len(tasks))

    yield from workers.run(stage_trace, elsewhere, tell)


def _align(run_path: Path, ranks: Mapping[int, StagedRank], workers: Workers, on_progress: Progress) -> int:
    """Shift all ranks to their earliest epoch and return it in Unix ns; without wall clocks, shift nothing."""
    epoch_ns = min(rank.start_ns for rank in ranks.values())
    known = all(rank.facts.absolute for rank in ranks.values())
    shifts = [
        ShiftTask(layout.rank_path(run_path, number), rank.start_ns - epoch_ns)
        for number, rank in ranks.items()
        if known and rank.start_ns != epoch_ns
    ]

    for _ in workers.run(shift_rank, shifts, lambda done: on_progress(done / len(shifts))):
        pass
    if not shifts:
        on_progress(1.0)
    return epoch_ns


def _move(run_path: Path, target: Path) -> None:
    """Move the finished run to the path `target`. If this folder exists, its other files stay."""
    align_all(run_path, run_path)
    sync_tree(run_path)
    if not target.exists():
        move(run_path, target)
    else:
        for name in (layout.EARLIER_FOLDER, layout.PROFILER_FOLDER):
            if (run_path / name).exists() and not (target / name).exists():
                move(run_path / name, target / name)
    sync_parents(layout.profiler_path(target))


def _part(on_progress: Progress, begin: float, end: float) -> Progress:
    """Return a progress callback for one stage of an import. It maps 0 … 1 to the range from `begin` to `end`."""
    return lambda share: on_progress(begin + (end - begin) * share)
