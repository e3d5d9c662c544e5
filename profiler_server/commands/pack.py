"""`stepscope pack`: a whole run in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collector.format.schema.errors import OutputError
from profiler_server.commands import BaseDir, RunName, find_base_dir, find_run

NAME = "pack"
EXAMPLE = "stepscope pack runs/digits -o digits.stepscope"


def command(
    context: typer.Context,
    run: RunName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; named after the run by default."),
    ] = None,
    base_dir: BaseDir = None,
) -> None:
    """Put a run into one file, which opens again everywhere: by every command, in Python, dropped on the list of runs."""
    from collector.format.packed import SUFFIX, write_pack
    from profiler_server.format import format_bytes, format_number_of

    opened = find_run(run, find_base_dir(base_dir, context))
    path = output or Path(f"{opened.path.name}{SUFFIX}")
    if not path.name.endswith(SUFFIX):
        raise OutputError(f"{path} does not end in {SUFFIX}, by which a packed run is known")
    try:
        count = write_pack(opened, path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error})") from None
    typer.echo(f"Wrote {format_number_of(count, 'file')} to {path} ({format_bytes(path.stat().st_size)})")
