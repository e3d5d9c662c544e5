"""Sub-commands of `stepscope`, one file each, which declares NAME, EXAMPLE and `command`. No list names them.

Slow imports are inside functions, so that `--help` and a wrong argument get an answer at once. Must not import another
command; shared code is in this file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.format.schema.errors import RunNotFoundError, UsageError

if TYPE_CHECKING:
    from collector.format.run import Run
    from collector.traces.workers import Workers

RunName = Annotated[str, typer.Argument(metavar="RUN", help="Path of a run, or its name below --summary-base-dir.")]


def read_base_dir(place: str) -> Path:
    """Return the folder of a base directory; for a URL, its local mirror. Raises UsageError for a URL that cannot be
    listed."""
    from collector.storage.urls import is_url

    if not is_url(place):
        return Path(place)
    from profiler_server.store.mirror import open_mirror

    return open_mirror(place).root


BaseDir = Annotated[
    Path | None,
    typer.Option(
        "--summary-base-dir",
        metavar="DIR",
        parser=read_base_dir,
        help="Folder that holds the runs, or its URL, such as s3://bucket/runs.",
    ),
]
Dask = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Have a Dask cluster do it, such as tcp://scheduler:8786.")
]


def find_base_dir(given: Path | None, context: typer.Context) -> Path | None:
    """Return the base directory that the user gave after the sub-command, else the one before it; None if neither
    was given."""
    return given or (context.obj if isinstance(context.obj, Path) else None)


def find_run(name: str, base_dir: Path | None) -> Run:
    """Open a run by its path or URL, or, if `base_dir` is given, by its id or name below this folder.

    Raises RunNotFoundError, or UsageError for a missing base directory.
    """
    from collector.format.run import open_run

    if "://" in name:
        return open_run(read_base_dir(name))
    if base_dir is not None and not base_dir.is_dir():
        raise UsageError(f"--summary-base-dir {base_dir} does not exist")
    try:
        return open_run(name, base_dir)
    except RunNotFoundError as error:
        if base_dir is not None or Path(name).exists():
            raise
        raise RunNotFoundError(
            f"{name!r} is no run; give its path, or its name together with --summary-base-dir DIR"
        ) from error


def find_runs(words: list[str], base_dir: Path | None) -> list[Run]:
    """Return the runs that words name. A word is a run, or a folder with runs below it. Raises as `find_run` does."""
    from collector.format.run import open_run

    found: list[Run] = []
    for word in words:
        below = list_runs_below(word)
        if below == () and base_dir is None:
            raise RunNotFoundError(f"no run lies in or below {word}")
        found += [open_run(path) for path in below] if below else [find_run(word, base_dir)]
    return found


def list_runs_below(word: str) -> tuple[Path, ...] | None:
    """Return the paths of the runs in or below a folder; empty for a folder without runs. None if the word is no
    folder, or if it is a run or a run's profiler folder.
    """
    from collector.format.finding import scan_base
    from collector.format.schema import layout

    folder = Path(word).expanduser()
    if not folder.is_dir() or folder.name == layout.PROFILER_FOLDER or layout.run_file(folder).is_file():
        return None
    return tuple(scan_base(folder).paths)


def find_run_path(name: str, base_dir: Path | None) -> Path:
    """Return the path of a run, even if its run.json is damaged or gone. Raises RunNotFoundError."""
    from collector.format.schema import layout

    path = Path(name).expanduser().resolve()
    places = [path, path.parent] if path.name == layout.PROFILER_FOLDER else [path]
    if base_dir is not None and (base_dir / name).resolve().is_relative_to(base_dir.resolve()):
        places.append((base_dir / name).resolve())
    found = next((place for place in places if layout.profiler_path(place).is_dir()), None)
    return found or find_run(name, base_dir).path


def find_workers(jobs: int | None, dask: str | None, choose: Callable[[], int], most: int) -> Workers:
    """Return the workers that will do tasks: a Dask cluster, `jobs` processes, or as many as `choose` returns, at most
    `most`.

    Raises UsageError if both `jobs` and `dask` are given, or if the cluster does not answer.
    """
    from collector.traces.workers import Cluster, Here, Processes

    if dask is not None:
        if jobs is not None:
            raise UsageError("--jobs and --dask exclude each other; the cluster has its own workers")
        cluster = Cluster(dask)
        if not cluster.workers:
            typer.echo(f"{dask} has no worker yet; waiting for one. To start one: dask worker {dask}", err=True)
        return cluster
    count = min(jobs, most) if jobs is not None else choose()
    return Processes(count) if count > 1 else Here(jobs)


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the share done, 0 to 1. It draws a bar on a terminal, and nothing into a pipe."""
    if not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda share: progress.update(task, completed=min(max(share, 0.0), 1.0))
