"""`stepscope report`: the content of the pages, as text or JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collector.format.schema.errors import OutputError, RunError, UsageError
from collector.format.schema.writing import write_output
from profiler_server.commands import BaseDir, Dask, RunName, find_base_dir, find_run, find_workers, show_progress

if TYPE_CHECKING:
    from collector.format.run import Run
    from collector.traces.workers import Workers
    from profiler_server.report import Reporting

NAME = "report"
EXAMPLE = "stepscope report runs/digits"
PATIENCE_S = 30.0
"""Time limit for reading new runs of a base directory for the history, s."""


def command(
    context: typer.Context,
    run: RunName,
    base_dir: BaseDir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; times are ns, shares fractions.")
    ] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Print three lines: what bounds the run, what to change, what that gains.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file that needs no server or network.")
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="With --html: leave out the names that are yours, such as host and modules."),
    ] = False,
    rank: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="One rank, with its own verdict and suggestions; all by default."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Processes that read ranks; by default as many as cores and memory allow for more than 128 ranks.",
        ),
    ] = None,
    dask: Dask = None,
) -> None:
    """Say what a run is bound by, its figures and what to change."""
    from profiler_server.report import Reporting, build_report, is_empty
    from profiler_server.report.text import choose_described, render_text

    base = find_base_dir(base_dir, context)
    opened = find_run(run, base)
    if rank is not None:
        opened.rank(rank)  # raises an error that names the existing ranks, if this rank does not exist
    workers = choose_readers(opened, jobs, dask)
    if brief:
        _write_brief(opened, rank, base)  # before the file, which takes longer
    if html is not None:
        _write_html(opened, html, redact, rank, Reporting(workers, earlier=find_others(opened, base)[0]), brief)
    if brief or html is not None:
        return
    if redact:
        raise UsageError("--redact leaves names out of the file that --html FILE writes; give both")
    with show_progress(f"Reading {opened.path.name}") as on_progress:
        earlier, history = find_others(opened, base)
        described = None if as_json or rank is not None else choose_described(opened)
        report = build_report(opened, rank, Reporting(workers, on_progress, earlier, described))
        if described is not None and is_empty(report):  # other ranks may hold something
            report = build_report(opened, rank, Reporting(workers, on_progress, earlier))
        report["history"] = history
    if is_empty(report) and report["warnings"]:
        raise RunError(f"nothing of {opened.path} can be reported: {report['warnings'][0]}")
    text = json.dumps(report, indent=1, ensure_ascii=False) if as_json else render_text(report, opened, rank)
    typer.echo(text, nl=as_json)


def _write_brief(run: Run, rank: int | None, base_dir: Path | None) -> None:
    from profiler_server.report.brief import write_brief
    from profiler_server.report.outcome import list_outcome_lines, report_outcome

    typer.echo("\n".join(write_brief(run, rank)))  # printed at once: the reader may not wait for the rest
    for line in list_outcome_lines(report_outcome(find_others(run, base_dir)[0], run)):
        typer.echo(line)


def find_others(run: Run, base_dir: Path | None) -> tuple[Run | None, dict[str, Any] | None]:
    """Return the run that `run` tries to improve, and the last lasting change of the step time in the runs of its
    script up to `run`.

    Each is None if there is none. If `base_dir` is None, the change is None. If the base directory cannot be read in
    time, both are None.
    """
    from profiler_server.analysis.history import find_last_change
    from profiler_server.report.building import report_history
    from profiler_server.store.catalog import Catalog, find_earlier_beside

    if base_dir is None:
        return find_earlier_beside(run), None
    catalog = Catalog(base_dir)
    try:
        listing = catalog.list_runs(PATIENCE_S)
        entry = next((entry for entry in listing.runs if entry.path.resolve() == run.path.resolve()), None)
        if entry is None or listing.unread:
            return None, None
        earlier, found = catalog.find_baseline(entry.id), find_last_change(listing.runs, entry.id)
        history = report_history(*found) if found is not None else None
        return catalog.open(earlier) if earlier is not None else None, history
    finally:
        catalog.close()


def choose_readers(run: Run, jobs: int | None, dask: str | None) -> Workers:
    """Return the workers that read the ranks of a run. They also compute the cached results that pages of large runs
    need.
    """
    from collector.format.stored_files import LENDERS
    from collector.traces.workers import Here, count_processes
    from profiler_server.derive.many import READER_BYTES, choose_processes
    from profiler_server.derive.stamps import FEW_RANKS
    from profiler_server.derive.store import find_store

    ranks = len(run.ranks)
    is_small = ranks <= FEW_RANKS and jobs is None and dask is None
    if is_small or LENDERS:  # only this process can fetch the files of a bucket
        return Here()
    workers = find_workers(jobs, dask, lambda: count_processes(ranks, READER_BYTES), ranks)
    find_store().choose_workers = choose_processes if jobs is None and dask is None else lambda ranks: workers
    return workers


def _write_html(run: Run, path: Path, redact: bool, rank: int | None, how: Reporting, quiet: bool) -> None:
    from profiler_server.web.report_file import render_report

    with show_progress(f"Reading {run.path.name}") as on_progress:
        text = render_report(run, redact, rank, replace(how, on_progress=on_progress))
    try:
        write_output(path, text)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"{path} cannot be written ({reason}); choose a path in a folder that you can write"
        ) from None
    if not quiet:
        typer.echo(f"{path} ({len(text.encode()) / 1024:.0f} KiB)")
