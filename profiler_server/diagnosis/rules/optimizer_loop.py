"""The parameter update loops over tensors in Python, one small operator after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from profiler_server.analysis.results import Abstention
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import UPDATE_FRAC
from profiler_server.diagnosis.seen import predict_or
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_count, format_duration, format_share

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers with a fused form on every device."""
_FOREACH = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def _judge(case: Case) -> Finding | Abstention | None:
    share = case.steps.share("optimizer")
    if share < UPDATE_FRAC:
        return None
    optimizers = case.facts.get("optimizers") or _read_optimizers(case)
    if not isinstance(optimizers, list) or not optimizers:
        return Abstention("optimizer_loop", "which optimizer runs and how", "Record with a newer version of Stepscope.")
    slow = [entry for entry in optimizers if isinstance(entry, Mapping) and _loops(case, entry)]
    if not slow:
        return None
    name, tensors = str(slow[0].get("name")), slow[0].get("tensors")
    flag = "fused" if name in _FUSED else "foreach"
    update_ns = case.steps.phases_ns["optimizer"]
    over = f" over {format_count(tensors)} tensors" if isinstance(tensors, int) else ""
    finding = Finding(
        title=f"{name} updates parameters one tensor at a time",
        measured=f"The update takes {format_duration(update_ns)} of {format_duration(case.steps.mean_ns)} "
        f"({format_share(share)}); {name} loops{over} (foreach and fused are off).",
        threshold=f"The update takes at least {format_share(UPDATE_FRAC)} of the step, and neither foreach nor fused is on.",
        advice="Update all tensors in one call. How much that saves depends on how many and how small they are.",
        change=f"optimizer = torch.optim.{name}(model.parameters(), {flag}=True)  # your other arguments as they are",
        fix=f"{flag}=True in {name}",
        evidence=(STEPS_PAGE,),
        what_if=shorten_step(case, "optimizer", update_ns, 0.6),
        gain_range=(0.6, 1.5),
    )
    return predict_or(case, finding, "optimizer", "update")


def _read_optimizers(case: Case) -> list[Mapping[str, Any]]:
    """Return the optimizer that a window shows to loop, where its settings were not recorded."""
    replay = case.device.replay
    seen = replay.seen.get("update_loops") if replay is not None else None
    names = [_STEP.fullmatch(name) for name in seen.examples] if seen is not None else []
    return [{"name": found[1], "foreach": False} for found in names if found is not None]


def _loops(case: Case, optimizer: Mapping[str, Any]) -> bool:
    """Say whether the optimizer runs its Python loop. Left to itself, PyTorch takes foreach on a CUDA device only."""
    if optimizer.get("name") not in (*_FUSED, *_FOREACH) or optimizer.get("fused"):
        return False
    if optimizer.get("name") == "SGD" and optimizer.get("momentum") is False and not case.device.is_used:
        return False  # one pass over the parameters as it is: on a processor there is nothing to fuse
    if optimizer.get("foreach") is None:
        return not case.device.is_used
    return not optimizer.get("foreach")


RULE = Rule("optimizer_loop", knob="optimizer", effort="flag", judge=_judge, muted_when_input_bound=True)
