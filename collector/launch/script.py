"""Run a script or a module as Python does: `__main__`, sys.argv, sys.path, exit codes, tracebacks."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from collector.format.schema.errors import UsageError

MODULE_FOLDER_VARIABLE = "STEPSCOPE_MODULE_FOLDER"
"""Environment variable for the folder that is searched first for a module, in place of the current folder. Pairs set
it, because the base's code is elsewhere."""
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


@dataclass(frozen=True)
class Program:
    """The user's program: a file, or a module's name; `arguments` are the words after the name."""

    name: str
    is_module: bool
    arguments: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return [*(["-m"] if self.is_module else []), self.name, *self.arguments]


def run_program(program: Program) -> None:
    """Run the program in this process as `__main__`; its state stays until the process ends.

    All its exceptions pass through, without this package's frames in the traceback. Raises UsageError if the program
    does not exist.
    """
    if program.is_module:
        main, code = _load_module(program)
    else:
        main, code = _load_file(program)
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    except BaseException as error:
        _hide_own_frames(error)
        raise


def leave_out_python(program: Program) -> Program:
    """Return the program without a leading Python, as in `python train.py`, which people write out of habit.

    Raises UsageError for another Python than this one, and for Python's flags, which come too late here.
    """
    is_script = os.path.isfile(program.name) and not os.access(program.name, os.X_OK)
    if program.is_module or is_script or not _PYTHON.fullmatch(os.path.basename(program.name)):
        return program
    is_module, path = program.arguments[:1] == ("-m",), shutil.which(program.name)
    words = program.arguments[is_module:]
    if path is None or not _is_this_python(path):
        raise UsageError(
            f"{program.name} is another Python than {sys.executable}; in it: {program.name} -m stepscope run …"
        )
    if not words or words[0].startswith("-"):
        raise UsageError(
            "`stepscope run` records a script or, after -m, a module; with flags of Python: python -O -m stepscope run train.py"
        )
    return Program(words[0], is_module, words[1:])


def _is_this_python(path: str) -> bool:
    """Return whether `path` is the Python of this process. Two environments may share one file, and one folder may hold
    two versions. A shim of pyenv stands for the Python in use.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(folder) == "shims":
        return True
    same_folder = os.path.realpath(folder) == os.path.realpath(os.path.dirname(sys.executable))
    return same_folder and os.path.samefile(path, sys.executable)


def _load_file(program: Program) -> tuple[ModuleType, CodeType]:
    path = os.path.join(os.getcwd(), program.name)  # as Python does: not tidied
    try:
        # The source stays bytes: its first lines may name an encoding.
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise UsageError(_explain_unread(program.name, error)) from None
    sys.argv = [program.name, *program.arguments]
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    main = _build_main(path, None)
    main.__loader__ = SourceFileLoader("__main__", path)
    return main, _compile(source, path)


def _explain_unread(name: str, error: OSError) -> str:
    if shutil.which(name) and not os.path.exists(name):
        return (
            f"{name} is a command, not a script; put `stepscope run` behind it, before the script: "
            f"{name} … stepscope run train.py"
        )
    return f"the script {name} cannot be read ({error.strerror or error}); give the path of a Python file"


def _load_module(program: Program) -> tuple[ModuleType, CodeType]:
    sys.argv = ["-m", *program.arguments]
    _set_first_path(os.environ.get(MODULE_FOLDER_VARIABLE) or os.getcwd())
    spec = _find_main_spec(program.name)
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise UsageError(f"the module {program.name} has no Python code to run")
    sys.argv[0] = spec.origin or program.name
    main = _build_main(spec.origin or program.name, spec)
    main.__loader__ = loader
    return main, code


def _find_main_spec(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise UsageError(f"the module {name} cannot be found ({error})") from None
    if spec is None:
        raise UsageError(f"there is no module {name}; give its name as for `python -m`")
    if spec.submodule_search_locations is None:
        return spec
    if name.endswith(".__main__"):
        raise UsageError(f"{name} is a package and cannot be run")
    return _find_main_spec(f"{name}.__main__")


def _build_main(file: str, spec: ModuleSpec | None) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = spec
    main.__package__ = None if spec is None else spec.parent
    vars(main).update({"__cached__": None if spec is None else spec.cached, "__builtins__": __builtins__})
    return main


def _compile(source: bytes, path: str) -> CodeType:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        _hide_own_frames(error)
        raise


def _set_first_path(folder: str) -> None:
    """Put the script's folder first on sys.path, as Python does, in place of `stepscope run`'s folder."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _hide_own_frames(error: BaseException) -> None:
    """Make the interpreter's traceback of this error begin in the user's code.

    The interpreter must still receive the same error. The process then ends as it would without us: by a signal for
    Ctrl-C.
    """
    inner = error.__traceback__
    while inner is not None and Path(inner.tb_frame.f_code.co_filename).parent == Path(__file__).parent:
        inner = inner.tb_next
    hook = sys.excepthook

    def report(kind: type[BaseException], value: BaseException, whole: TracebackType | None) -> None:
        if value is error:
            hook(kind, value.with_traceback(inner), inner)
        else:
            hook(kind, value, whole)

    sys.excepthook = report
