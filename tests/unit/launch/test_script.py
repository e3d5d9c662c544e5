"""A script under `stepscope run` is what it is under Python: arguments, paths, exit codes, tracebacks, children."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.launch.programs import run_launcher, write_script

TELL = """
import json, sys
spec = __spec__ and __spec__.name
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __package__, spec, sys.modules["__main__"].__dict__ is globals()]))
"""


def run_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=folder, timeout=300)


def run_started(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run `stepscope run words…` as an interpreter of its own: how that ends is what is tested."""
    return run_python(folder, "-m", "collector.launch", *map(str, words))


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "-o", "x", "--", "-m"),
        ("./deep/../train.py",),
        ("-m", "package.tool", "-w", "1"),
        ("-m", "package"),
    ],
)
def test_it_sees_what_it_sees_under_python(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/__init__.py", "package/tool.py", "package/__main__.py"):
        write_script(tmp_path, "" if "init" in name else TELL, name)
    launched = run_launcher(tmp_path, "-o", "out", *words)
    assert json.loads(launched.stdout) == json.loads(run_python(tmp_path, *words).stdout)


@pytest.mark.parametrize(
    "end", ["raise ValueError('planned')", "import sys; sys.exit(7)", "import sys; sys.exit('no')", "1 +"]
)
def test_it_ends_as_under_python(tmp_path: Path, end: str) -> None:
    path = str(write_script(tmp_path, f"def f():\n    pass\n{end}\n"))
    launched, plain = run_started(tmp_path, path), run_python(tmp_path, path)
    assert launched.returncode == plain.returncode
    own = [line for line in launched.stderr.splitlines() if not line.startswith("stepscope:")]
    assert own == plain.stderr.splitlines()


def test_an_interrupt_ends_it_by_the_signal(tmp_path: Path) -> None:
    path = write_script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    launched = run_started(tmp_path, path)
    assert launched.returncode == -signal.SIGINT
    assert "collector" not in launched.stderr


def test_without_torch_nothing_is_recorded_and_torch_is_not_imported(tmp_path: Path) -> None:
    path = write_script(tmp_path, "import sys\nprint('torch' in sys.modules, 'pyarrow' in sys.modules)\n")
    launched = run_started(tmp_path, "-o", "out", path)
    assert launched.stdout.split() == ["False", "False"]
    assert "neither imported torch nor marked a range" in launched.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("missing.py",), "the script missing.py cannot be read"),
        (("-m", "missing_module"), "no module missing_module"),
        (("--colour", "train.py"), "unrecognized arguments: --colour"),
        (("-np", "0", "train.py"), "'0' is no whole number from 1 on"),
        (("-np", "two", "train.py"), "'two' is no whole number from 1 on"),
        ((), "name a script"),
    ],
)
def test_a_wrong_command_is_named_in_a_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    launched = run_launcher(tmp_path, *words)
    assert launched.returncode == 2
    assert told in launched.stderr.splitlines()[-1]
    assert "Traceback" not in launched.stderr
