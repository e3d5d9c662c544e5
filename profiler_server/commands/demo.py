"""`stepscope demo`: record a real training run, then show it, so that a user sees the pages without a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from collector.format.schema.errors import OutputError, UsageError
from profiler_server.commands import BaseDir, find_base_dir
from profiler_server.settings import Settings

NAME = "demo"
EXAMPLE = "stepscope demo --port 8081"
DEFAULT_BASE = Path("stepscope-demo")


def command(
    context: typer.Context,
    base_dir: BaseDir = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = Settings.host,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port; another is taken when it is in use.")
    ] = Settings.port,
    steps: Annotated[int | None, typer.Option(metavar="N", min=1, help="Training steps to record.")] = None,
    serve: Annotated[bool, typer.Option(help="Show the run once it is recorded.")] = True,
) -> None:
    """Train a small model on this machine, record it (in stepscope-demo by default), and show it."""
    from profiler_server.web import serving

    base = find_base_dir(base_dir, context) or DEFAULT_BASE
    output = name_output(base)
    typer.echo(f"Recording a real training run of a small CNN into {output}", err=True)
    record(output, steps)
    if serve:
        settings = serving.with_free_port(Settings(base, host, port))
        serving.serve(settings, typer.echo)


def name_output(base: Path) -> Path:
    """Make `base`, and return the first free path of demo-1, demo-2, … below it."""
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{base} cannot be made: {error.strerror or error}") from None
    number = 1
    while (base / f"demo-{number}").exists():
        number += 1
    return base / f"demo-{number}"


def record(output: Path, steps: int | None) -> None:
    """Train a model and record it into `output`, with `steps` steps (None: the demo's own number). A separate
    process does it, so that this process never imports torch. Raises UsageError if the training fails."""
    more = [] if steps is None else ["--steps", str(steps)]
    done = subprocess.run([sys.executable, "-m", "collector.demo", str(output), *more])
    if done.returncode:
        raise UsageError(f"the demo's training ended with exit code {done.returncode}; what it said stands above")
