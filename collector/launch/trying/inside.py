"""The process of a trial: the change is applied, writes are led to a scratch folder, and it ends after some steps."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collector.context.hooks import ImportWatch
from collector.edge import log_failure
from collector.format.schema.wording import format_number_of
from collector.format.schema.writing import replace_text
from collector.launch.origin import PLAN_VARIABLE
from collector.launch.trying.applying import apply_change, follow_losses, seed_all
from collector.launch.trying.lines import follow_places
from collector.launch.trying.redirect import Redirect, forbid_writes

TRIAL_VARIABLE = "STEPSCOPE_TRIAL"
"""Is "1" in a trial, so that a script can tell."""
RESULT_FILE = "trial.json"
WARM_UP = 10
"""So many steps are not compared: workers and caches are not as they will be."""
_SEED = 20


@dataclass(frozen=True)
class Plan:
    """A trial: `change` is knob -> value; `steps` to end after; `seconds` after warming up, if `least` steps are done by
    then. `scratch` takes what the script writes, `folder` the result, `cache` what compilers keep for later trials.
    `records`: Stepscope records it, and the result has the places of calls that a change would rewrite."""

    change: Mapping[str, Any]
    steps: int
    least: int
    seconds: float
    scratch: str
    folder: str
    cache: str
    records: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))


def begin_trial() -> Plan:
    """Prepare this process before the script runs in it."""
    plan = Plan(**json.loads(os.environ[PLAN_VARIABLE]))
    scratch, folder = Path(plan.scratch), Path(plan.folder)
    redirect = Redirect(scratch, (folder, Path(plan.cache)))
    redirect.install()
    is_guarded = forbid_writes((scratch, folder, Path(plan.cache)))
    trial = _Trial(plan, is_guarded, redirect)
    sys.meta_path.insert(0, ImportWatch("torch", trial.begin))
    sys.meta_path.insert(0, ImportWatch("safetensors.torch", trial.lead_safetensors))
    sys.meta_path.insert(0, ImportWatch("sqlite3", trial.lead_sqlite))
    return plan


class _Trial:
    def __init__(self, plan: Plan, is_guarded: bool, redirect: Redirect) -> None:
        self._plan = plan
        self._redirect = redirect
        self._is_guarded = is_guarded
        self._ends: list[int] = []
        self._owner = os.getpid()
        self._losses: list[Any] = []
        self._places: dict[str, Any] = {}

    def begin(self) -> None:
        torch = sys.modules["torch"]
        self._redirect.lead(torch, "save", 1, writes=True)
        self._redirect.lead(torch, "load", 0, writes=False)
        seed_all(torch, _SEED)
        apply_change(self._plan.change)
        self._losses = follow_losses(torch, self._plan.steps)
        if self._plan.records:
            self._places = follow_places(torch)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._end_step)
        atexit.register(self._leave_at_end)

    def lead_safetensors(self) -> None:
        files = sys.modules["safetensors.torch"]
        self._redirect.lead(files, "save_file", 1, writes=True)
        self._redirect.lead(files, "load_file", 0, writes=False)

    def lead_sqlite(self) -> None:
        self._redirect.lead(sys.modules["sqlite3"], "connect", 0, writes=True, brings=True)

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if os.getpid() != self._owner:
            return
        self._ends.append(time.perf_counter_ns())
        done = len(self._ends)
        begin = WARM_UP if self._plan.least > WARM_UP else 0
        is_late = done >= self._plan.least and self._ends[-1] - self._ends[begin] >= self._plan.seconds * 1e9
        if done >= self._plan.steps or (is_late and _is_first_rank()):
            self._leave()

    def _leave_at_end(self) -> None:
        """Count a script that has fewer updates than a trial, unless it failed."""
        if os.getpid() == self._owner and len(self._ends) >= self._plan.least and not hasattr(sys, "last_value"):
            self._leave()

    def _leave(self) -> None:
        """Write the result and end at once: nothing that the script does at its end belongs to a trial.

        Only the first rank ends early: the others may be a step behind. With its result there, all processes are ended.
        """
        if not _is_first_rank():
            os._exit(0)
        if self._plan.records:
            _finish_recording()
        print(f"stepscope: the trial ends here, after {format_number_of(len(self._ends), 'update')}", flush=True)
        losses = [float(value) for value in self._losses]
        result = {"ends_ns": self._ends, "losses": losses, "is_guarded": self._is_guarded, "places": self._places}
        replace_text(Path(self._plan.folder) / RESULT_FILE, json.dumps(result))
        os._exit(0)


def _is_first_rank() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _finish_recording() -> None:
    from collector.session.profiler import active_profiler

    profiler = active_profiler()
    if profiler is not None:
        with log_failure("the trial's recording is not complete"):
            profiler._finish_at_exit()
