"""`stepscope recover`: make tables of what a killed run left, and name the damaged tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from collector.format.schema.errors import RunError, read_or
from profiler_server.commands import BaseDir, Dask, RunName, find_base_dir, find_run_path, find_workers, show_progress

if TYPE_CHECKING:
    from collector.format.run import RankRun

NAME = "recover"
EXAMPLE = "stepscope recover runs/digits"
_OUTCOMES = {
    "recovered": "its tables are made of what it left",
    "complete": "its tables were complete already",
    "recording": "still recording, left alone",
    "lost": "nothing is left to make tables of",
}


def command(
    context: typer.Context,
    run: RunName,
    base_dir: BaseDir = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes that recover ranks at the same time; by default one."),
    ] = None,
    dask: Dask = None,
) -> None:
    """Make the tables that analyse() would have made of a killed run. A damaged table of an ended rank stays lost."""
    from collector.format.run import open_run
    from collector.format.schema.layout import rank_path
    from collector.sidecar.process import recover_rank

    path = find_run_path(run, find_base_dir(base_dir, context))
    opened = open_run(path)
    if not opened.ranks:
        raise RunError(f"{path} has no rank folder, so there is nothing to recover")
    workers = find_workers(jobs, dask, lambda: 1, len(opened.ranks))
    folders = [rank_path(path, rank) for rank in opened.ranks]
    with show_progress(f"Recovering {path.name}") as on_progress:
        words = list(workers.run(recover_rank, folders, lambda done: on_progress(done / len(folders))))
    is_whole = True
    for rank, word in zip(opened.ranks, words, strict=True):
        damages = _list_damage(opened.rank(rank))
        for damage in damages:
            typer.echo(f"rank {rank}: {damage}")
        outcome = "its other tables can be read" if damages else _OUTCOMES.get(word, word)
        typer.echo(f"rank {rank}: {outcome}, {_count_steps(opened.rank(rank))}")
        is_whole = is_whole and not damages
    if is_whole and read_or(False, lambda: open_run(path).is_recovered):
        typer.echo("The run itself was cut off, so it stays listed as crashed, recovered: it has all that it left.")


def _list_damage(rank: RankRun) -> list[str]:
    from collector.format.schema.tables import TABLES

    try:
        found = [rank.status(table) for table in TABLES]
    except RunError as error:
        return [str(error)]
    return [status.reason for status in found if status.state == "broken"]


def _count_steps(rank: RankRun) -> str:
    from collector.format.steps import train_steps
    from profiler_server.format import format_number_of

    try:
        return format_number_of(train_steps(rank.table("steps", ("kind",))).num_rows, "training step")
    except RunError:
        return "no training steps"
