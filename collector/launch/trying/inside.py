"""The process of a trial: it applies the change, redirects writes to a scratch folder, and runs in turns.

A turn is a number of updates of an optimizer. After them the process writes their times into a pipe and waits for the
next turn.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collector.context.hooks import ImportWatch
from collector.edge import log_failure
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.trying.applying import apply_change, follow_losses, seed_all
from collector.launch.trying.lines import follow_places
from collector.launch.trying.redirect import Redirect, forbid_writes

TRIAL_VARIABLE = "STEPSCOPE_TRIAL"
"""Is "1" in a trial, so that a script can tell."""
REPORTS, TURNS = "reports", "turns"
"""The names of a trial's pipes in its folder."""
_SEED = 20
_SET_PDEATHSIG = 1
_AHEAD = ("numpy", "torch", "torch._dynamo", "torchvision", "torchaudio", "PIL", "pandas", "scipy", "sklearn")
"""Modules that a process may import before it is forked and its script begins. None of them starts Python threads."""
_READ_AT_IMPORT = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "ATEN_", "PYTORCH_", "TORCH_", "DNNL_")


@dataclass(frozen=True)
class Span:
    """The length of a turn: `updates` of an optimizer, or fewer (at least `least`) once `seconds` have passed.

    The script's first update is not counted, because its start is unknown.
    """

    updates: int
    least: int = 1
    seconds: float = 1e9

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True)
class Plan:
    """A trial: `change` maps each setting to a value; `first` is the length of its first turn.

    `scratch` is the folder for everything that the script writes, `folder` holds the pipes, and `cache` keeps the
    caches of compilers for later trials. With `records`, Stepscope records the trial, the trial ends after its first
    turn, and its report has the facts that later trials need.
    """

    change: Mapping[str, Any]
    first: Mapping[str, Any]
    scratch: str
    folder: str
    cache: str
    records: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))


def begin_trial() -> Plan:
    """Prepare this process for its trial before the script runs in it. Return the plan of the trial."""
    plan = Plan(**json.loads(os.environ[PLAN_VARIABLE]))
    scratch, folder = Path(plan.scratch), Path(plan.folder)
    redirect = Redirect(scratch, (folder, Path(plan.cache)))
    redirect.install()
    is_guarded = forbid_writes((scratch, folder, Path(plan.cache)))
    trial = _Trial(plan, is_guarded, redirect)
    _when_imported("torch", trial.begin)
    _when_imported("safetensors.torch", trial.lead_safetensors)
    _when_imported("sqlite3", trial.lead_sqlite)
    return plan


def _when_imported(name: str, call: Callable[[], None]) -> None:
    if name in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, ImportWatch(name, call))


class _Trial:
    def __init__(self, plan: Plan, is_guarded: bool, redirect: Redirect) -> None:
        self._plan = plan
        self._redirect = redirect
        self._is_guarded = is_guarded
        self._span = Span(**plan.first)
        self._marks: list[int] = []
        """The times at which the turn began and each update ended. The beginning of the first turn is unknown."""
        self._owner = os.getpid()
        self._losses: list[Any] = []
        self._places: dict[str, Any] = {}
        self._environment = dict(os.environ)
        self._turns = -1

    def begin(self) -> None:
        torch = sys.modules["torch"]
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_READ_AT_IMPORT) and self._environment.get(name) != value
        }
        self._redirect.lead(torch, "save", 1, writes=True)
        self._redirect.lead(torch, "load", 0, writes=False)
        seed_all(torch, _SEED)
        apply_change(self._plan.change)
        self._losses = follow_losses(torch)
        if self._plan.records:
            self._places = follow_places(torch)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._end_step)
        atexit.register(self._leave_at_end)
        if _is_first_rank():
            self._turns = _open_pipe(self._plan.folder, TURNS, os.O_RDONLY)
        _end_with_parent()
        os.register_at_fork(after_in_child=_end_with_parent)

    def lead_safetensors(self) -> None:
        files = sys.modules["safetensors.torch"]
        self._redirect.lead(files, "save_file", 1, writes=True)
        self._redirect.lead(files, "load_file", 0, writes=False)

    def lead_sqlite(self) -> None:
        self._redirect.lead(sys.modules["sqlite3"], "connect", 0, writes=True, brings=True)

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._turns < 0 or os.getpid() != self._owner:
            return
        self._marks.append(time.perf_counter_ns())
        done, span = len(self._marks) - 1, self._span
        if done >= span.updates or (done >= span.least and self._marks[-1] - self._marks[0] >= span.seconds * 1e9):
            self._hand_over()

    def _hand_over(self) -> None:
        """Report the turn and wait for the next one. Unfinished work of a device still belongs to the turn."""
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            self._marks[-1] = time.perf_counter_ns()
        if self._plan.records:
            self._leave()
        self._report(is_over=False)
        words = os.read(self._turns, 1000)
        if not words:
            os._exit(0)
        self._span = Span(**json.loads(words))
        self._marks = [time.perf_counter_ns()]

    def _report(self, is_over: bool) -> None:
        steps = [later - earlier for earlier, later in itertools.pairwise(self._marks)]
        losses = [float(value) for value in self._losses]
        self._losses.clear()
        report: dict[str, Any] = {"steps_ns": steps, "losses": losses, "is_over": is_over}
        report["is_guarded"] = self._is_guarded
        if self._plan.records:
            report |= {"places": self._places, "environment": self._environment}
            report |= {"uses_device": sys.modules["torch"].cuda.is_initialized()}
            report["ranks"] = int(os.environ.get("WORLD_SIZE", "1"))
            report["imports"] = [name for name in _AHEAD if name in sys.modules]
        pipe = _open_pipe(self._plan.folder, REPORTS, os.O_WRONLY)
        text = json.dumps(report).encode() + b"\n"
        while text:
            text = text[os.write(pipe, text) :]
        os.close(pipe)

    def _leave_at_end(self) -> None:
        """Report the last turn of a script that ends, unless the script failed."""
        is_well = os.getpid() == self._owner and not hasattr(sys, "last_value")
        if is_well and self._turns >= 0 and len(self._marks) > 1:
            self._leave()

    def _leave(self) -> None:
        """Report and end the process at once: a trial leaves out everything that the script does at its end."""
        if self._plan.records:
            _finish_recording()
        with suppress(OSError):
            sys.stdout.flush()
            self._report(is_over=True)
        os._exit(0)


def _open_pipe(folder: str, name: str, flags: int) -> int:
    """Open a pipe. End this process if the search has ended."""
    try:
        pipe = os.open(os.path.join(folder, name), flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        os._exit(1)
    os.set_blocking(pipe, True)
    return pipe


def _end_with_parent() -> None:
    """Have this process killed when its parent ends: a stopped process cannot see that nobody will wake it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _is_first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _finish_recording() -> None:
    from collector.session.profiler import active_profiler

    profiler = active_profiler()
    if profiler is not None:
        with log_failure("the trial's recording is not complete"):
            profiler._finish_at_exit()
