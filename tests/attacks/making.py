"""Make an attempt: train plain, train recorded, compare, and look at what was recorded."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collector import open_run
from collector.format.schema.errors import StepscopeError
from collector.sidecar.process import recover_run
from profiler_server.report import build_report
from tests.attacks.attempts import Attempt
from tests.attacks.training import EXIT_CODE, build_script
from tests.disk.watching import build_watch

STEPS = 60
MOST_SECONDS = 300
MOST_END_S = 60.0
MOST_LEFT_S = 60.0
DEATH, OTHER_LOSSES, SILENT_LOSS, TRACEBACK, LONG_END, LEFT_BEHIND = FAULTS = (
    "death of the training",
    "other losses",
    "silent loss",
    "traceback",
    "long end",
    "process left behind",
)
_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Outcome:
    """What an attempt did. `faults` are what must not be; the rest is for whoever looks closer."""

    name: str
    faults: tuple[str, ...]
    code: int | None
    recorded: int
    end_s: float
    said: str


def make(attempt: Attempt) -> Outcome:
    """Make one attempt in a folder of its own, and say what it did."""
    with tempfile.TemporaryDirectory(prefix="attempt") as name:
        folder = Path(name)
        code, losses, said, seconds = _train(attempt, folder, True)
        recorded, told = _read(folder)
        _open_all(folder)
        left = _find_left(folder)
        _remove_groups()
        plain_code, plain_losses, plain_said = _plain(attempt, code != EXIT_CODE or "Traceback" in said)
        found = {
            DEATH: code != plain_code,
            OTHER_LOSSES: code == plain_code and losses != plain_losses,
            SILENT_LOSS: recorded < STEPS and not (said.strip() or told.strip()),
            TRACEBACK: "Traceback" in told or said.count("Traceback") > plain_said.count("Traceback"),
            LONG_END: seconds > MOST_END_S,
            LEFT_BEHIND: bool(left),
        }
        faults = tuple(fault for fault in FAULTS if found[fault])
        return Outcome(attempt.name, faults, code, recorded, seconds, said + told)


def _plain(attempt: Attempt, is_odd: bool) -> tuple[int | None, bytes, str]:
    """Return what the training does without a recording; the attempt is made on it, too, where the training did oddly."""
    return _train_plain(attempt) if is_odd else _train_undisturbed()


@cache
def _train_undisturbed() -> tuple[int | None, bytes, str]:
    return _train_plain(Attempt("plain"))


def _train_plain(attempt: Attempt) -> tuple[int | None, bytes, str]:
    with tempfile.TemporaryDirectory(prefix="plain") as name:
        return _train(attempt, Path(name), False)[:3]


def _train(attempt: Attempt, folder: Path, is_recorded: bool) -> tuple[int | None, bytes, str, float]:
    script = folder / "train.py"
    script.write_text(build_script(attempt, _ROOT, is_recorded), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, *attempt.flags, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": _ROOT, **attempt.environment, **(_preload() if attempt.is_watched else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=MOST_SECONDS)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        code = None
    said = (folder / "said.txt").read_text() if (folder / "said.txt").exists() else ""
    return code, out, err.decode(errors="replace"), float(said or 0)


@cache
def _preload() -> dict[str, str]:
    folder = tempfile.mkdtemp(prefix="watch")
    atexit.register(shutil.rmtree, folder)
    return {"LD_PRELOAD": str(build_watch(Path(folder)))}


def _read(folder: Path) -> tuple[int, str]:
    """Recover what was recorded as a user would, and return how many steps it has, and all that is said of it."""
    run = next((path for path in (folder / "out", folder / "elsewhere") if path.is_dir()), None)
    if run is None:
        return 0, "no run"
    _open_all(folder)
    try:
        return _recover(run)
    except (StepscopeError, OSError) as error:  # the commands say these in one line
        return 0, str(error)
    except Exception:  # noqa: BLE001  whatever else it is, a user sees a traceback
        return 0, traceback.format_exc()


def _recover(path: Path) -> tuple[int, str]:
    said: list[str] = []
    deadline = time.monotonic() + MOST_LEFT_S
    while "recording" in recover_run(path).values() and time.monotonic() < deadline:
        time.sleep(0.5)
    said += recover_run(path).values()
    build_report(open_run(path))
    first = open_run(path).rank(0)
    said += [warning.text for warning in first.manifest.warnings]
    said += [f"{signal.name}: {signal.reason}" for signal in first.manifest.signals if signal.state == "failed"]
    told = [text for text in said if text and text not in ("complete", "recovered", "recording")]
    try:
        return first.count_steps(), "\n".join(told)
    except StepscopeError as error:
        return 0, "\n".join([*told, str(error)])


def _open_all(folder: Path) -> None:
    """Let the folder be removed, whatever the attempt made of its modes."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


def _find_left(folder: Path) -> list[int]:
    """Return the recorder processes of this attempt that are still there some time after its end."""
    deadline = time.monotonic() + MOST_LEFT_S
    while (left := _find_ours(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:
        os.kill(pid, 9)
    return left


def _remove_groups() -> None:
    """Remove the memory cgroups that an attempt made, as soon as nobody is in them."""
    for group in Path("/sys/fs/cgroup").glob("**/stepscope-attempt-*"):
        with suppress(OSError):
            group.rmdir()


def _find_ours(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_text(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if "collector.sidecar" in command and str(folder) in command:
            found.append(int(entry.name))
    return found
