"""`stepscope mcp`: the runs below a folder for an assistant, by the Model Context Protocol."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Annotated

import typer

from collector.format.schema.errors import UsageError
from profiler_server.commands import BaseDir, find_base_dir

NAME = "mcp"
EXAMPLE = "stepscope mcp --summary-base-dir runs"


def command(
    context: typer.Context,
    base_dir: BaseDir = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out the names that are yours, such as host, modules and runs.")
    ] = False,
) -> None:
    """Answer an assistant's questions about runs, read-only, over stdin and stdout; the assistant starts this itself."""
    wire = os.dup(1)
    divert(2)  # first of all: any text that a library prints would end the conversation
    base = find_base_dir(base_dir, context)
    if base is None or not base.is_dir():
        raise UsageError(
            f"mcp needs --summary-base-dir DIR, the folder that holds the runs{f'; {base} is none' if base else ''}"
        )
    try:
        from profiler_server.assistant.server import build_server
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("mcp needs the package mcp, version 2.3 or later: pip install 'stepscope[mcp]'") from None
    from profiler_server.derive.store import Store

    server = build_server(base, redact)
    divert(wire)
    try:
        with Store().held():
            server.run("stdio")  # which itself diverts what is printed while it answers
    finally:
        divert(2)


def divert(target: int) -> None:
    """Make standard output go to another descriptor, after all that was printed until now went where it went."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # the buffers of libraries in C
    os.dup2(target, 1)
