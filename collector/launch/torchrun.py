"""Below torchrun: the launcher itself is not recorded, the workers that it starts are.

Their command is wrapped, `script.py …` becomes `-m collector.launch … script.py …`, so that no file has to be put where
every Python process would load it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from collector.launch.script import Program

MODULES = ("torch.distributed.run", "torch.distributed.launch")
COMMAND = "torchrun"
_OWN_MODULE, _OWN_COMMAND = "collector.launch", "profiler-run"


def is_torchrun(program: Program) -> bool:
    """Say whether the program is torchrun, by its name."""
    return program.name in MODULES if program.is_module else Path(program.name).name == COMMAND


def wrap_workers(program: Program, own_words: Sequence[str]) -> Program:
    """Return torchrun's command with its workers' command wrapped, unless it is so already.

    `own_words` are the options for profiler-run there.
    Workers that are no Python (`--no-python`), or functions (`--run-path`), stay as they are: a line on stderr says so.
    torchrun's own parser finds where its arguments end; SystemExit passes through when it does not like them.
    """
    from torch.distributed.run import get_args_parser

    given = get_args_parser().parse_args(list(program.arguments))
    if given.no_python or given.run_path:
        option = "--no-python" if given.no_python else "--run-path"
        print(
            f"profiler-run: workers started by torchrun {option} are not recorded; "
            "let their own command begin with profiler-run",
            file=sys.stderr,
        )
        return _as_module(program, program.arguments)
    if given.training_script == _OWN_MODULE or Path(given.training_script).name == _OWN_COMMAND:
        return _as_module(program, program.arguments)
    own = program.arguments[: len(program.arguments) - len(given.training_script_args) - 1]
    worker = Program(given.training_script, bool(given.module), tuple(given.training_script_args))
    flags = own if given.module else (*own, "-m")
    return _as_module(program, (*flags, _OWN_MODULE, *own_words, *worker.words))


def _as_module(program: Program, arguments: Sequence[str]) -> Program:
    name = program.name if program.is_module else MODULES[0]
    return Program(name, True, tuple(arguments))
