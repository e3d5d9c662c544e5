"""Try mutants: a copy of the repository for each job, and a forked process for each mutant.

The libraries are imported once, before the fork; what is tested is imported in the child, so that it is the mutant.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tests.mutation.mutants import Mutant

ROOT = Path(__file__).parents[2]
_LIBRARIES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pandas",
    "psutil",
    "pytest",
    "hypothesis",
    "scipy.stats",
)
_LEAST_S = 15.0
_TIMES = 6.0
_FAILED, _NO_TESTS = (1, 2), 5
Verdict = Literal["killed", "survived", "timeout"]


@dataclass(frozen=True)
class Trial:
    """A mutant and the tests that must notice it."""

    mutant: Mutant
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: Verdict


class BaselineError(Exception):
    """The tests of a room fail, or there are none, before anything is changed."""


def try_mutants(trials: Sequence[Trial], jobs: int) -> Iterator[Result]:
    """Yield each mutant with its verdict as it is known. BaselineError if the tests do not pass as they are."""
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            __import__(name)
    tests = sorted({test for trial in trials for test in trial.tests})
    with TemporaryDirectory(prefix="mutation-") as folder:
        copies = [_copy_repository(Path(folder) / str(number)) for number in range(jobs)]
        begin = time.monotonic()
        code = _run_tests(copies[0], tests, 600.0)
        if code != 0:
            told = _log_of(copies[0]).read_text(encoding="utf-8", errors="replace")[-2000:]
            raise BaselineError(f"{told}\n{' '.join(tests)}: exit code {code} before anything is changed")
        limit_s = max(_LEAST_S, _TIMES * (time.monotonic() - begin))
        yield from _share_out(trials, copies, limit_s)


def _share_out(trials: Sequence[Trial], copies: Sequence[Path], limit_s: float) -> Iterator[Result]:
    waiting: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    done: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    for trial in trials:
        waiting.put(trial)

    def work(copy: Path) -> None:
        try:
            while True:
                trial = waiting.get_nowait()
                done.put(Result(trial.mutant, _try(copy, trial, limit_s)))
        except queue.Empty:
            pass
        except BaseException as error:
            done.put(error)
            raise

    for copy in copies:
        threading.Thread(target=work, args=(copy,), daemon=True).start()
    for _ in trials:
        result = done.get()
        if isinstance(result, BaseException):
            raise result
        yield result


def _try(copy: Path, trial: Trial, limit_s: float) -> Verdict:
    path = copy / trial.mutant.path
    original = path.read_bytes()
    path.write_text(trial.mutant.source, encoding="utf-8")
    try:
        code = _run_tests(copy, trial.tests, limit_s)
    finally:
        path.write_bytes(original)
    return "timeout" if code is None else "survived" if code == 0 else "killed"


def _run_tests(copy: Path, tests: Sequence[str], limit_s: float) -> int | None:
    """Run the tests in a child; return their exit code, None if they took too long."""
    child = os.fork()
    if child == 0:
        _become_tests(copy, tests)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become_tests(copy: Path, tests: Sequence[str]) -> None:
    """Run the tests of the copy in this process, and end it with their exit code."""
    code = 3
    try:
        os.setsid()
        os.chdir(copy)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(copy), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
        os.environ["PYTHONPATH"] = str(copy)
        for name in [
            name for name in sys.modules if name.partition(".")[0] in ("collector", "profiler_server", "tests")
        ]:
            del sys.modules[name]
        with open(_log_of(copy), "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        import pytest

        # Plug-ins of pytest were imported before it could rewrite them.
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", "--no-header"]
        code = int(pytest.main(["-x", "-q", *quiet, f"--rootdir={copy}", *tests]))
    except BaseException:  # noqa: BLE001  the end of a process: whatever it is belongs into its log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _log_of(copy: Path) -> Path:
    return copy.with_suffix(".log")


def _copy_repository(target: Path) -> Path:
    """Copy what git would commit now; folders that only tests of the browser need are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        source = ROOT / name
        if source.is_file() and not name.startswith(("docs/", "tests/browser/", "tests/js/")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
    return target
