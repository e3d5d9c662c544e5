"""`profiler-run python train.py`: parse the interpreter's own command line, which people write out of habit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.errors import UsageError
from collector.launch.script import Program

_NAME = re.compile(r"python(3(\.\d+)?)?")
_VALUED = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class Interpreter:
    """A Python with its flags, and the program that it runs."""

    path: str
    flags: tuple[str, ...]
    program: Program

    @property
    def is_this(self) -> bool:
        """Whether this process runs the same interpreter, and so can run the program itself."""
        # Not the same file: the interpreters of two environments may be links to one.
        return not self.flags and Path(self.path).parent == Path(sys.executable).parent


def read_interpreter(program: Program) -> Interpreter | None:
    """Return the interpreter in a command line, None if the command is not Python. UsageError if it runs no script or
    module.
    """
    if program.is_module or not _NAME.fullmatch(Path(program.name).name) or _is_script(program.name):
        return None
    path = shutil.which(program.name)
    if path is None:
        raise UsageError(f"there is no {program.name} here; name the script alone, or a Python that is on the PATH")
    words, position = program.arguments, 0
    while position < len(words) and words[position].startswith("-") and words[position] not in ("-m", "-c", "-"):
        position += 2 if words[position] in _VALUED else 1
    rest = words[position:]
    is_module = bool(rest) and rest[0] == "-m"
    rest = rest[1:] if is_module else rest
    if not rest or rest[0] in ("-c", "-"):
        raise UsageError(
            "profiler-run records scripts and modules; write the code into a file, or name a module after -m"
        )
    return Interpreter(os.path.abspath(path), tuple(words[:position]), Program(rest[0], is_module, tuple(rest[1:])))


def run_elsewhere(interpreter: Interpreter, own_words: Sequence[str]) -> None:
    """Replace this process by the interpreter, which records with the same options. UsageError if it lacks stepscope."""
    found = subprocess.run([interpreter.path, "-c", "import collector.launch"], capture_output=True)
    if found.returncode:
        raise UsageError(
            f"{interpreter.path} cannot import stepscope; install it there, or start the script without naming a Python"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    command = [*interpreter.flags, "-m", "collector.launch", *own_words, *interpreter.program.words]
    os.execv(interpreter.path, [interpreter.path, *command])


def _is_script(name: str) -> bool:
    """Return whether the name is a Python file that only looks like an interpreter."""
    return os.path.isfile(name) and not os.access(name, os.X_OK)
