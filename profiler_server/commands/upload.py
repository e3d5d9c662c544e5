"""`stepscope upload`: copy a run to a URL, or the remaining files after an upload that was cut off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.format.schema.errors import OutputError, RunError, UsageError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run_path, show_progress

if TYPE_CHECKING:
    from collector.storage.uploading import RankUpload

NAME = "upload"
EXAMPLE = "stepscope upload profiler_spool/bucket/runs/a s3://bucket/runs/a"


def command(
    context: typer.Context,
    run: RunName,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the run goes, such as s3://bucket/runs/a.")],
    base_dir: BaseDir = None,
) -> None:
    """Copy a run to a URL; files that are there already are not sent again."""
    from collector.edge import Edge
    from collector.format.schema.layout import find_ranks, rank_path
    from collector.storage.uploading import RankUpload
    from collector.storage.urls import explain, is_url, open_remote
    from profiler_server.format import format_number_of

    if not is_url(url):
        raise UsageError(f"{url} is no URL; give one such as s3://bucket/runs/a")
    path = find_run_path(run, find_base_dir(base_dir, context))
    uploads = {rank: RankUpload(rank_path(path, rank), url.rstrip("/")) for rank in find_ranks(path)}
    if not uploads:
        raise RunError(f"{path} has no rank folder, so there is nothing to upload")
    open_remote(url)
    failures: list[Exception] = []
    sent: list[str] = []
    with show_progress(f"Uploading {path.name}") as on_progress, Edge(failures.append):
        for upload in uploads.values():
            upload.join()
        total = count_missing(path, uploads)

        def note(name: str) -> None:
            sent.append(name)
            on_progress(len(sent) / max(total, 1))

        for upload in uploads.values():
            upload.upload(note)
            upload.finish()
    if failures:
        text = str(failures[0]) if isinstance(failures[0], OutputError) else f"{url}: {explain(failures[0])}"
        left = f"{format_number_of(len(sent), 'file')} sent, {count_missing(path, uploads):,} left"
        raise OutputError(f"{text}. {left}; the same command goes on from there")
    typer.echo(f"Uploaded {format_number_of(len(sent), 'file')} to {url}")


def count_missing(path: Path, uploads: Mapping[int, RankUpload]) -> int:
    from collector.format.schema.layout import rank_path
    from collector.storage.ledger import list_missing

    return sum(len(list_missing(rank_path(path, rank), upload.ledger)) for rank, upload in uploads.items())
