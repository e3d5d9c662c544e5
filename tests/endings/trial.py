"""One training, bare or recorded, from its start until nothing of it is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from collector.format.schema.layout import CONTROL_FILE, PROFILER_FOLDER
from tests.endings import processes
from tests.endings.cells import JOBS, STEPS, Cell, Door

ROOT = Path(__file__).parents[2]
START_S = 120.0
"""How long a job may take to its last step."""
OURS_S = 150.0
"""How long processes of ours may outlive a training that was killed: as long as analyse() would wait for them."""
HOLDS_S = 20.0
"""The recorder process of a training that was killed may hold its stderr for so long: it says there what went wrong."""
_LAST = b"last step of rank "


@dataclass(frozen=True)
class Trial:
    """What one training showed. `end_s` is the time from its last step, or from the signal, to the end of its last
    process; None where it was still there at the limit. `bytes` are digests of its checkpoints by name. `left` are
    processes and open files that should not be there, `files` what lies outside of the run."""

    door: Door
    code: int | None
    end_s: float | None
    out: str
    err: str
    bytes: dict[str, str]
    left: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ours_s: float = 0.0
    stacks: str = field(default="", repr=False)


@dataclass
class _Place:
    """The folders of a trial. All that it writes to the current and the temporary folder is looked at behind it."""

    root: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        for path in (self.work, self.temporary):
            path.mkdir()

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def err(self) -> Path:
        return self.root / "err"


def run_trial(cell: Cell, door: Door, limit_s: float = 60.0) -> Trial:
    """Start the job of a cell by this door, end it as the cell says, and return what was seen."""
    with tempfile.TemporaryDirectory(prefix="endings-", ignore_cleanup_errors=True) as folder:
        return run_trial_in(Path(folder), cell, door, limit_s)


def run_trial_in(folder: Path, cell: Cell, door: Door, limit_s: float = 60.0) -> Trial:
    """Do the same in an empty folder, which keeps what the job leaves: what was recorded is in `run`."""
    _take_signals()
    place = _Place(folder.resolve())
    try:
        return _watch(cell, door, place, limit_s)
    finally:
        processes.end_all(place.mark)


def _take_signals() -> None:
    """Let a process that is started take signals as at a terminal; one in the background of a shell ignores them."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def build_command(cell: Cell, door: Door, run: Path) -> list[str]:
    """Return the words that start a job, as its user would write them."""
    script = str(JOBS / cell.kind.script)
    launcher = [word.format(ranks=cell.ranks) for word in cell.kind.launcher]
    if door == "run":
        return [sys.executable, "-m", "collector.launch", "-o", str(run), *launcher, script]
    if launcher:
        module = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}
        launcher[0] = module[launcher[0]]
        return [sys.executable, "-m", *launcher, script]
    return [sys.executable, script]


def build_environment(cell: Cell, door: Door, place: _Place) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PROFILER_", "ENDINGS_"))}
    way = cell.way
    environment |= {
        processes.MARK: place.mark,
        "ENDINGS_STEPS": str(STEPS),
        "ENDINGS_WAY": "outside" if way.is_outside else way.inside if way.inside != "return" else way.name,
        "ENDINGS_VICTIM": str(cell.ranks - 1 if way.victim is None else way.victim),
        "ENDINGS_RANKS": str(cell.ranks),
        "TMPDIR": str(place.temporary),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PROFILER_VERDICT": os.environ.get("PROFILER_VERDICT", "0"),
    }
    if door == "script":
        environment |= {"ENDINGS_DOOR": "tests.endings.in_script", "ENDINGS_RUN": str(place.run)}
    if door != "bare" and way.window is not None:
        environment["PROFILER_OPTIONS"] = json.dumps({"window": way.window})
    return environment


def _watch(cell: Cell, door: Door, place: _Place, limit_s: float) -> Trial:
    with _make_busy(cell.load), place.out.open("wb") as out, place.err.open("wb") as err:
        started = subprocess.Popen(
            build_command(cell, door, place.run),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=place.work,
            env=build_environment(cell, door, place),
            start_new_session=True,
        )
        last_s = _wait_for_last_step(cell, started, place)
        if started.poll() is None and cell.way.is_outside:
            last_s = _strike(cell, door, started, place)
        until_s = last_s + limit_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(max(until_s - time.monotonic(), 0.1))
        remaining = processes.wait_until_gone(place.mark, max(until_s, time.monotonic()))
        ended_s = time.monotonic()
    has_ended = started.poll() is not None and not remaining
    stacks = "" if has_ended else processes.describe_stacks(place.mark)
    if not has_ended:
        processes.end_all(place.mark)
        started.wait()
    left = _list_left(place)
    return Trial(
        door=door,
        code=started.returncode if has_ended else None,
        end_s=ended_s - last_s if has_ended else None,
        out=_read_text(place.out, place),
        err=_read_text(place.err, place),
        bytes={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in place.work.glob("checkpoint*")},
        left=left,
        files=_list_files(place),
        ours_s=time.monotonic() - ended_s,
        stacks=stacks,
    )


def _wait_for_last_step(cell: Cell, started: subprocess.Popen[bytes], place: _Place) -> float:
    """Return when all ranks had done their last step, or when the job ended or took too long."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and started.poll() is None:
        if place.out.read_bytes().count(_LAST) >= _count_trained(cell):
            break
        time.sleep(0.01)
    return time.monotonic()


def _count_trained(cell: Cell) -> int:
    return 2 if cell.kind.name == "threads" else cell.ranks


def _strike(cell: Cell, door: Door, started: subprocess.Popen[bytes], place: _Place) -> float:
    """Send the signals of a way, and return when the last of them was sent."""
    if cell.way.orders and door != "bare":
        control = place.run / PROFILER_FOLDER / CONTROL_FILE
        control.write_text(json.dumps({"window": {"first": STEPS * 1000, "count": 5}}), "utf-8")
    for stroke in cell.way.strokes:
        time.sleep(stroke.after_s)
        number = signal.Signals[stroke.signal]
        with contextlib.suppress(ProcessLookupError):
            if stroke.to_group:
                os.killpg(started.pid, number)
            else:
                os.kill(started.pid, number)
    return time.monotonic()


def _list_left(place: _Place) -> tuple[str, ...]:
    """Wait for processes of ours, and say which stay, or hold the output of the training for long."""
    held = _wait_for_output(place)
    stays = processes.wait_until_gone(place.mark, time.monotonic() + OURS_S, ours_too=True)
    return (*(f"holds the output: {name}" for name in held), *(f"still runs: {one.command}" for one in stays))


def _wait_for_output(place: _Place) -> list[str]:
    """Return who holds what the training wrote its lines to, HOLDS_S after its end: a pipe would not end before."""
    until_s = time.monotonic() + HOLDS_S
    while True:
        found = processes.find_processes(place.mark)
        held = [one.command for one in found if processes.holds_file(one.pid, (place.out, place.err))]
        if not held or time.monotonic() > until_s:
            return held
        time.sleep(0.05)


def _list_files(place: _Place) -> tuple[str, ...]:
    """Return the files outside of the run, but the job's own."""
    found = (path for folder in (place.work, place.temporary) for path in folder.rglob("*") if not path.is_dir())
    return tuple(sorted(str(path.relative_to(place.root)) for path in found))


def _read_text(path: Path, place: _Place) -> str:
    return path.read_text("utf-8", "replace").replace(str(place.root), "<trial>").replace(str(JOBS), "<jobs>")


@contextlib.contextmanager
def _make_busy(load: str) -> Iterator[None]:
    """Keep each core busy, and one more, while the block runs."""
    count = len(os.sched_getaffinity(0)) + 1 if load == "busy" else 0
    shell = shutil.which("sh") or "/bin/sh"
    loops = [subprocess.Popen([shell, "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
