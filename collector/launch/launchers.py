"""Record the workers that torchrun, `accelerate launch` and deepspeed start, but not the launcher itself.

The workers' command is wrapped: `script.py …` becomes `-m collector.launch … script.py …`. So no file must be installed
that every Python process would load. Each launcher's own parser finds the end of the launcher's arguments; no other
code can know it.
"""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.edge import say
from collector.format.schema.errors import UsageError
from collector.launch.script import Program

_OWN_MODULE = "collector.launch"
OLDER_COMMAND = "profiler-run"


@dataclass(frozen=True)
class Workers:
    """The command of a launcher's workers. `unrecorded` is the launcher's option that keeps them from being recorded,
    such as `--no-python`; "" without one.
    """

    script: str
    arguments: tuple[str, ...]
    is_module: bool
    unrecorded: str = ""


@dataclass(frozen=True)
class Launcher:
    """A launcher: `command` is its name; `modules` are its names for `python -m`, and the first one is run.

    `first` are the words of the sub-command that starts workers. `module_flag` says that a module follows. `parse`
    reads the words after `first`; SystemExit passes through if the launcher rejects the words.
    """

    command: str
    modules: tuple[str, ...]
    first: tuple[str, ...]
    module_flag: str
    parse: Callable[[list[str]], Workers]


def find_launcher(program: Program) -> Launcher | None:
    """Return the launcher that the program's name belongs to, None for another program."""
    for launcher in LAUNCHERS:
        if program.name in launcher.modules if program.is_module else Path(program.name).name == launcher.command:
            return launcher
    return None


def wrap_workers(launcher: Launcher, program: Program, own_words: Sequence[str]) -> Program:
    """Return the launcher's command, in which the workers' command is wrapped unless it is already.

    `own_words` are the options for `stepscope run` in the workers. Workers that are not run by Python stay unchanged, with
    a line on stderr. UsageError if the launcher is not installed.
    """
    # The command's own module takes no sub-command where `python -m` names the module of one.
    name = program.name if program.is_module else launcher.modules[0]
    workers = read_workers(launcher, program)
    rest = _strip_first(launcher, program)
    if workers.unrecorded:
        say(
            f"workers started by {launcher.command} {workers.unrecorded} are not recorded; "
            "let their own command begin with `stepscope run`"
        )
        return Program(name, True, rest)
    if Path(workers.script).name in (_OWN_MODULE, OLDER_COMMAND, "stepscope"):
        return Program(name, True, rest)
    own = rest[: len(rest) - len(workers.arguments) - 1]
    flags = own if workers.is_module else (*own, launcher.module_flag)
    words = Program(workers.script, workers.is_module, workers.arguments).words
    return Program(name, True, (*flags, _OWN_MODULE, *own_words, *words))


def read_workers(launcher: Launcher, program: Program) -> Workers:
    """Return the workers that the launcher's command starts. UsageError if it is not installed, or starts no workers."""
    if importlib.util.find_spec(launcher.modules[0].partition(".")[0]) is None:
        raise UsageError(f"{launcher.command} is not installed in the Python of stepscope ({sys.executable})")
    return launcher.parse(list(_strip_first(launcher, program)))


def _strip_first(launcher: Launcher, program: Program) -> tuple[str, ...]:
    first = () if program.is_module else launcher.first
    if program.arguments[: len(first)] != first:
        begin = " ".join((launcher.command, *first))
        raise UsageError(
            f"only {begin} … starts workers that can be recorded; run other commands without `stepscope run`"
        )
    return program.arguments[len(first) :]


def _read_torchrun(words: list[str]) -> Workers:
    from torch.distributed.run import get_args_parser

    given = get_args_parser().parse_args(words)
    unrecorded = "--no-python" if given.no_python else "--run-path" if given.run_path else ""
    return _build_workers(given, unrecorded)


def _read_accelerate(words: list[str]) -> Workers:
    from accelerate.commands.launch import launch_command_parser

    given = launch_command_parser().parse_args(words)
    return _build_workers(given, "--no_python" if given.no_python else "")


def _read_deepspeed(words: list[str]) -> Workers:
    from deepspeed.launcher.runner import parse_args

    given = parse_args(words)
    unrecorded = "--no_python" if given.no_python else ""
    return Workers(given.user_script, tuple(given.user_args), bool(given.module), unrecorded)


def _build_workers(given: Namespace, unrecorded: str) -> Workers:
    return Workers(given.training_script, tuple(given.training_script_args), bool(given.module), unrecorded)


LAUNCHERS = (
    Launcher("torchrun", ("torch.distributed.run", "torch.distributed.launch"), (), "-m", _read_torchrun),
    Launcher("accelerate", ("accelerate.commands.launch",), ("launch",), "-m", _read_accelerate),
    Launcher("deepspeed", ("deepspeed.launcher.runner",), (), "--module", _read_deepspeed),
)
