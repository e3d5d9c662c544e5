"""The process of a trial: the change is applied, writes are led to a scratch folder, and it ends after some steps."""

from __future__ import annotations

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
from collector.launch.trying.redirect import Redirect, forbid_writes

TRIAL_VARIABLE = "STEPSCOPE_TRIAL"
"""Is "1" in a trial, so that a script can tell."""
RESULT_FILE = "trial.json"
_SEED = 20


@dataclass(frozen=True)
class Plan:
    """A trial: `change` is knob -> value; `steps` to end after; `seconds` after the first step, if `least` steps are done
    by then. `scratch` takes what the script writes, `folder` the result. `records`: Stepscope records it."""

    change: Mapping[str, Any]
    steps: int
    least: int
    seconds: float
    scratch: str
    folder: str
    records: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))


def begin_trial() -> Plan:
    """Prepare this process before the script runs in it."""
    plan = Plan(**json.loads(os.environ[PLAN_VARIABLE]))
    scratch, folder = Path(plan.scratch), Path(plan.folder)
    redirect = Redirect(scratch, (folder,))
    redirect.install()
    is_guarded = forbid_writes((scratch, folder))
    trial = _Trial(plan, is_guarded, redirect)
    sys.meta_path.insert(0, ImportWatch("torch", trial.begin))
    sys.meta_path.insert(0, ImportWatch("safetensors.torch", trial.lead_safetensors))
    return plan


class _Trial:
    def __init__(self, plan: Plan, is_guarded: bool, redirect: Redirect) -> None:
        self._plan = plan
        self._redirect = redirect
        self._is_guarded = is_guarded
        self._ends: list[int] = []
        self._owner = os.getpid()
        self._losses: list[Any] = []

    def begin(self) -> None:
        torch = sys.modules["torch"]
        self._redirect.lead(torch, "save", 1, writes=True)
        self._redirect.lead(torch, "load", 0, writes=False)
        seed_all(torch, _SEED)
        apply_change(self._plan.change)
        self._losses = follow_losses(torch, self._plan.steps)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._end_step)

    def lead_safetensors(self) -> None:
        files = sys.modules["safetensors.torch"]
        self._redirect.lead(files, "save_file", 1, writes=True)
        self._redirect.lead(files, "load_file", 0, writes=False)

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if os.getpid() != self._owner:
            return
        self._ends.append(time.perf_counter_ns())
        done = len(self._ends)
        is_late = (self._ends[-1] - self._ends[0]) / 1e9 >= self._plan.seconds and done >= self._plan.least
        if done >= self._plan.steps or is_late:
            self._leave()

    def _leave(self) -> None:
        """Write the result and end at once: nothing that the script does at its end belongs to a trial."""
        losses = [float(value) for value in self._losses]
        result = {"ends_ns": self._ends, "losses": losses, "is_guarded": self._is_guarded}
        if os.environ.get("RANK", "0") != "0":
            os._exit(0)
        path = Path(self._plan.folder) / RESULT_FILE
        replace_text(path, json.dumps(result))
        if self._plan.records:
            _finish_recording()
        print(f"stepscope: the trial ends here, after {format_number_of(len(self._ends), 'step')}", flush=True)
        os._exit(0)


def _finish_recording() -> None:
    from collector.session.profiler import active_profiler

    profiler = active_profiler()
    if profiler is not None:
        with log_failure("the trial's recording is not complete"):
            profiler._finish_at_exit()
