"""`profiler-server recover`: make tables of what a killed run left."""

from __future__ import annotations

import typer

from collector.schema.errors import RunError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

NAME = "recover"


def command(context: typer.Context, run: RunName, base_dir: BaseDir = None) -> None:
    """Assemble what a killed run left behind, as analyse() would have."""
    from collector.sidecar.process import recover_run

    opened = find_run(run, find_base_dir(base_dir, context))
    words = recover_run(opened.path)
    if not words:
        raise RunError(f"{opened.path} has no rank folder, so there is nothing to recover")
    for rank, word in sorted(words.items()):
        steps = opened.rank(rank).count_rows("steps")
        typer.echo(f"rank {rank}: {word}, {steps:,} rows of steps")
