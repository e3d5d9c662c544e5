"""`stepscope import`: make runs of trace files."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.ending import unwind_at_signals
from collector.format.schema import layout
from collector.format.schema.errors import OutputError, UsageError
from collector.format.schema.wording import format_ranks_named
from collector.traces.limits import ReadLimits
from profiler_server.commands import BaseDir, Dask, find_base_dir, find_workers, show_progress
from profiler_server.format import format_ranks

if TYPE_CHECKING:
    from collector.format.run import Run
    from collector.traces.workers import Workers

NAME = "import"
_LIMITS = ReadLimits()
_IMPORT_FRAC = 0.97
"""Share of the progress bar for importing. The rest is for reading the ranks of a very large run in advance."""
EXAMPLE = "stepscope import trace.json.gz --summary-base-dir runs"


def command(
    context: typer.Context,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", help="Trace files, one per rank, or a folder.")],
    base_dir: BaseDir = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the run; by default that of the first file or folder, with a number if other files have that name.",
        ),
    ] = None,
    steps_from: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="How to find steps: optimizer, whole (the trace is one step), or a regular expression for their names.",
        ),
    ] = None,
    limit_gib: Annotated[
        float, typer.Option(metavar="GIB", min=0.001, help="Most that a trace file may unpack to.")
    ] = _LIMITS.unpacked_bytes / (1 << 30),
    limit_minutes: Annotated[
        float, typer.Option(metavar="MIN", min=0.01, help="Longest that the whole import may take.")
    ] = _LIMITS.seconds / 60,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Processes that read, files side by side or pieces of one; by default as many as cores and memory allow.",
        ),
    ] = None,
    dask: Dask = None,
) -> None:
    """Make a run from traces (torch.profiler, Perfetto), operations of a job, Flight Recorder dumps or NCCL's status."""
    from collector.traces.format import ReadOptions
    from collector.traces.importing import import_traces
    from profiler_server.store.mirror import find_mirror

    base = find_base_dir(base_dir, context)
    if base is None:
        raise UsageError("import needs --summary-base-dir DIR, the folder that the run is put into")
    if find_mirror(base.resolve()) is not None:
        raise UsageError("import puts a run into a folder of this machine; `stepscope upload` copies it to a URL")
    chosen = choose_name(base, traces, name)
    workers = choose_workers(traces, jobs, dask)
    with unwind_at_signals(tell_ended), show_progress(f"Importing {chosen}") as on_progress:
        limits = ReadLimits(int(limit_gib * (1 << 30)), limit_minutes * 60)
        options = ReadOptions(
            steps_from=steps_from, on_progress=lambda share: on_progress(_IMPORT_FRAC * share), limits=limits
        )
        run = import_traces(traces, base / chosen, options, workers)
        keep_ranks(run, workers)
    tell_result(run)


def tell_ended(number: int) -> None:
    typer.echo(f"Ended by {signal.Signals(number).name}; nothing was imported.", err=True)


def keep_ranks(run: Run, workers: Workers) -> None:
    """Read the ranks of a very large run and keep the results, so that its first page is fast. Do nothing for other
    runs.
    """
    from profiler_server.derive.stamps import FEW_RANKS

    if len(run.ranks) <= FEW_RANKS:
        return
    from profiler_server.analysis.ranks.ranks import summarize_ranks
    from profiler_server.derive.store import find_store

    find_store().choose_workers = lambda ranks: workers
    summarize_ranks(run)


def tell_result(run: Run) -> None:
    from profiler_server.analysis.ranks.ending import find_end
    from profiler_server.diagnosis.end_sentences import describe_end

    typer.echo(f"Imported {format_ranks(len(run.ranks), run.manifest.world_size)} as {run.path}")
    if (end := find_end(run)) is not None:
        typer.echo(describe_end(end))
    said: dict[str, list[int]] = {}
    for rank in run.ranks:
        for warning in run.read_rank(rank).manifest.warnings:
            said.setdefault(warning.text, []).append(rank)
    for text, ranks in said.items():
        typer.echo(f"{format_ranks_named(ranks)}: {text}", err=True)


def choose_name(base: Path, traces: list[Path], name: str | None) -> str:
    """Return the name of the run below `base`: the given name, or a name made from the traces that no other run has.

    Raises UsageError for a name that cannot be a folder name, OutputError for the name of an existing run.
    """
    from profiler_server.store.traces import UNSAFE, find_free_name, name_run

    chosen = name or name_run(traces[0].resolve().name)
    if UNSAFE.search(chosen) or chosen.startswith("."):
        raise UsageError(f"--name {chosen!r} may hold letters, digits, dot, dash and underscore only")
    target = (base / chosen).resolve()
    if layout.profiler_path(target).exists():
        raise OutputError(f"{target} holds a run already; choose another name with --name")
    return find_free_name(base, chosen) if name is None else chosen


def choose_workers(traces: list[Path], jobs: int | None, dask: str | None) -> Workers:
    from collector.traces.importing import list_files
    from collector.traces.workers import choose_jobs

    files = [] if dask is not None else list_files(traces)
    return find_workers(jobs, dask, lambda: choose_jobs(files), len(files))
