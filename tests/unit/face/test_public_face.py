"""What scripts import, and what a type checker and `help` know of it."""

from __future__ import annotations

import dataclasses
import inspect
import os
import pydoc
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import collector
from collector import OptionError, Profiler, StepscopeError
from collector.format.schema import errors
from collector.options import BY_LEVEL, Options

ROOT = Path(__file__).parents[3]
ENTRIES = {"stepscope": "run_stepscope", "profiler-server": "run_server", "profiler-run": "run_profiler"}


def test_every_error_can_be_imported_from_the_package() -> None:
    raised = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert raised <= set(collector.__all__)
    assert all(issubclass(getattr(collector, name), StepscopeError) for name in raised)


def test_every_name_of_the_package_is_there() -> None:
    assert [name for name in collector.__all__ if getattr(collector, name, None) is None] == []
    assert collector.__version__ == version("stepscope")


def test_the_profiler_lists_its_options_with_their_types() -> None:
    parameters = inspect.signature(Profiler).parameters
    options = [name for name, entry in parameters.items() if entry.default is BY_LEVEL]
    assert options == [field.name for field in dataclasses.fields(Options)]
    shown = pydoc.plain(pydoc.render_doc(Profiler.__init__))
    assert "level: 'Level | Default' = by level" in shown


def test_a_misspelt_option_is_refused_by_type_checkers_and_at_run_time() -> None:
    # The remark below must be needed: the gate's mypy fails where it would accept the option.
    with pytest.raises(OptionError, match="no option 'widow'; did you mean 'window'"):
        Profiler(widow=(3, 2))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="level takes one of"):
        Profiler(level="loud")  # type: ignore[arg-type]


def test_stepscope_is_another_name_of_collector() -> None:
    import stepscope

    assert stepscope.__all__ == collector.__all__
    assert all(getattr(stepscope, name) is getattr(collector, name) for name in collector.__all__)
    assert set(collector.__all__) < set(dir(stepscope))
    with pytest.raises(AttributeError, match="module 'stepscope' has no attribute 'Profilers'"):
        _ = stepscope.Profilers


def test_importing_stepscope_imports_neither_torch_nor_a_door() -> None:
    code = "import sys, stepscope; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'pyarrow') or m.startswith('stepscope.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "start"),
    [
        ("stepscope run", "usage: stepscope run [options] script.py"),
        ("stepscope report", "Usage: stepscope report [OPTIONS] {RUN}"),
        ("stepscope serve", "Usage: stepscope serve [DIR] [OPTIONS]"),
        ("profiler-run", "usage: profiler-run [options] script.py"),
        ("profiler-server report", "Usage: profiler-server report [OPTIONS] {RUN}"),
        ("profiler-server run", "usage: stepscope run [options] script.py"),
    ],
)
def test_usage_names_the_command_that_was_typed_and_all_else_stepscope(typed: str, start: str) -> None:
    name, *words = typed.split()
    done = run_entry(ENTRIES[name], *words, "--help", name=name)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith(start)
    assert "Example: profiler" not in text


def test_modules_of_stepscope_start_what_its_command_starts(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')\n", "utf-8")
    run = [sys.executable, "-m", "stepscope", "run", "script.py"]
    auto = [sys.executable, "-c", "import stepscope.auto, sys; print('collector.launch.activation' in sys.modules)"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command, printed in ((run, "ran\n"), (auto, "True\n")):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_stepscope_serve_takes_the_folder_and_errors_name_the_command(tmp_path: Path) -> None:
    done = run_entry("run_stepscope", "serve", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stepscope: ")
    assert str(tmp_path / "none") in done.stderr
    assert run_entry("run_stepscope", "run", "none.py").stderr.startswith("stepscope: ")


def test_help_names_documents_that_are_there() -> None:
    for function in ("run_profiler", "run_server"):
        _, _, place = "".join(run_entry(function, "--help").stdout.split()).partition("Documents:")
        assert Path(place).is_dir()


def test_the_shell_completes_verbs_and_options() -> None:
    environment = {
        **os.environ,
        "_STEPSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "stepscope re",
        "COMP_CWORD": "1",
    }
    code = "import sys; from profiler_server.entry import run_stepscope; sys.argv = ['stepscope']; run_stepscope()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert {"recover", "report"} <= set(done.stdout.split()), done.stderr


@pytest.mark.parametrize("package", ["collector", "profiler_server", "stepscope"])
def test_the_types_are_shipped(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def run_entry(
    function: str, *words: str, path: Path = ROOT, name: str = "stepscope"
) -> subprocess.CompletedProcess[str]:
    """Run a command as its installed script of that name does, with that folder first on the path."""
    code = f"import sys; from profiler_server.entry import {function}; sys.argv[0] = {name!r}; sys.exit({function}())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(path), str(ROOT)))}
    command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.parametrize("function", ["run_profiler", "run_server", "run_stepscope"])
def test_the_commands_tell_their_version(function: str) -> None:
    done = run_entry(function, "--version")
    assert (done.returncode, done.stdout) == (0, f"stepscope {collector.__version__}\n"), done.stderr


@pytest.mark.parametrize("function", ["run_profiler", "run_server", "run_stepscope"])
def test_another_package_named_collector_is_named_in_a_line(tmp_path: Path, function: str) -> None:
    (tmp_path / "collector").mkdir()
    (tmp_path / "collector/__init__.py").write_text("gather = print\n", encoding="utf-8")
    done = run_entry(function, "--version", path=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path}/collector/__init__.py is another package named collector" in line
