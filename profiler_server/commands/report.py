"""`profiler-server report`: the content of the pages, as text or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collector.format.schema.errors import OutputError, RunError, UsageError
from collector.format.schema.writing import write_output
from profiler_server.commands import BaseDir, Dask, RunName, find_base_dir, find_run, find_workers, show_progress

if TYPE_CHECKING:
    from collector.format.run import Run
    from collector.traces.workers import Workers

NAME = "report"
EXAMPLE = "profiler-server report runs/digits"
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
    from profiler_server.report.text import render_text

    base = find_base_dir(base_dir, context)
    opened = find_run(run, base)
    if rank is not None:
        opened.rank(rank)  # fails where there is none, and names those that there are
    workers = choose_readers(opened, jobs, dask)
    if html is not None:
        _write_html(opened, html, redact, rank, workers)
        return
    if brief:
        from profiler_server.report.brief import write_brief

        typer.echo("\n".join(write_brief(opened, rank)))
        return
    if redact:
        raise UsageError("--redact leaves names out of the file that --html FILE writes; give both")
    with show_progress(f"Reading {opened.path.name}") as on_progress:
        report = build_report(opened, rank, Reporting(workers, on_progress))
        report["history"] = find_history(opened, base) if base is not None else None
    if is_empty(report) and report["warnings"]:
        raise RunError(f"nothing of {opened.path} can be reported: {report['warnings'][0]}")
    text = json.dumps(report, indent=1, ensure_ascii=False) if as_json else render_text(report, opened, rank)
    typer.echo(text, nl=as_json)


def find_history(run: Run, base_dir: Path) -> dict[str, Any] | None:
    """Return the last change of level in the runs of this run's script below a base directory. None without a change,
    or if not all runs could be read in time."""
    from profiler_server.analysis.change_points import find_last_change
    from profiler_server.report.building import report_history
    from profiler_server.store.catalog import Catalog

    catalog = Catalog(base_dir)
    try:
        listing = catalog.list_runs(PATIENCE_S)
    finally:
        catalog.close()
    entry = next((entry for entry in listing.runs if entry.path.resolve() == run.path.resolve()), None)
    found = find_last_change(listing.runs, entry.id) if entry is not None and not listing.unread else None
    return report_history(*found) if found is not None else None


def choose_readers(run: Run, jobs: int | None, dask: str | None) -> Workers:
    """Return the workers that read the ranks of a run. The workers also cache what pages need of very many ranks."""
    from collector.format.stored_files import LENDERS
    from collector.traces.workers import Here, count_processes
    from profiler_server.derive.many import READER_BYTES, choose_processes
    from profiler_server.derive.stamps import FEW_RANKS
    from profiler_server.derive.store import find_store

    ranks = len(run.ranks)
    is_small = ranks <= FEW_RANKS and jobs is None and dask is None
    if is_small or LENDERS:  # only this process knows how files of a bucket are fetched
        return Here()
    workers = find_workers(jobs, dask, lambda: count_processes(ranks, READER_BYTES), ranks)
    find_store().choose_workers = choose_processes if jobs is None and dask is None else lambda ranks: workers
    return workers


def _write_html(run: Run, path: Path, redact: bool, rank: int | None, workers: Workers) -> None:
    from profiler_server.report import Reporting
    from profiler_server.web.report_file import render_report

    with show_progress(f"Reading {run.path.name}") as on_progress:
        text = render_report(run, redact, rank, Reporting(workers, on_progress))
    try:
        write_output(path, text)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"{path} cannot be written ({reason}); choose a path in a folder that you can write"
        ) from None
    typer.echo(f"{path} ({len(text.encode()) / 1024:.0f} KiB)")
