"""The parameter update loops over tensors in Python, one small operator after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC
from profiler_server.diagnosis.limits.thread import (
    FUSED_PARAMETER_NS,
    FUSED_TENSOR_NS,
    FUSED_UPDATE_NS,
    LEAST_FUSED,
    LEAST_UPDATE_SAVED,
    LOOP_SAVED,
    LOOPED_PARAMETER_NS,
    LOOPED_TENSOR_NS,
    MOST_FUSED,
    UPDATE_FRAC,
)
from profiler_server.diagnosis.what_if import predict_or, shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
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
    if _limit_saved(case, optimizers) * share < MIN_GAIN_FRAC:
        return None
    saved, least, most = _find_saved(case, optimizers) if flag == "fused" else LOOP_SAVED
    over = f" over {format_count(tensors)} tensors" if isinstance(tensors, int) else ""
    finding = Finding(
        title=f"{name} updates parameters one tensor at a time",
        measured=f"The update takes {format_duration(update_ns)} of {format_duration(case.steps.mean_ns)} "
        f"({format_share(share)}); {name} loops{over} (foreach and fused are off).",
        threshold=f"The update takes at least {format_share(UPDATE_FRAC)} of the step, and neither foreach nor fused is on.",
        advice="Update all tensors in one call. How much that saves depends on how many and how small they are.",
        change=f"optimizer = torch.optim.{name}(model.parameters(), {flag}=True)  # your other arguments as they are",
        fix=f"{flag}=True in {name}",
        what_if=shorten_step(case, "optimizer", update_ns, saved),
        gain_range=(least / saved, most / saved),
    )
    return predict_or(case, finding, "optimizer", "update")


def _find_saved(case: Case, optimizers: Sequence[Any]) -> tuple[float, float, float]:
    """Return the share of the update that fused optimizers save: usually, at least and at most.

    A fused update costs something for each tensor and each parameter, while a loop costs as much as its operators take.
    """
    sizes = _read_sizes(case, optimizers)
    if sizes is None:
        return LOOP_SAVED
    tensors, parameters = sizes
    each_ns = len(optimizers) * FUSED_UPDATE_NS + tensors * FUSED_TENSOR_NS + parameters * FUSED_PARAMETER_NS
    left, limit = each_ns / case.steps.phases_ns["optimizer"], _limit_saved(case, optimizers)
    usual, least, most = (
        max(min(1.0 - left * times, limit), LEAST_UPDATE_SAVED) for times in (1.0, MOST_FUSED, LEAST_FUSED)
    )
    return usual, least, most


def _limit_saved(case: Case, optimizers: Sequence[Any]) -> float:
    """Return the share of the update that loops over the tensors can take at most."""
    sizes = _read_sizes(case, optimizers)
    if sizes is None:
        return 1.0
    tensors, parameters = sizes
    looped_ns = tensors * LOOPED_TENSOR_NS + parameters * LOOPED_PARAMETER_NS
    return min(looped_ns / case.steps.phases_ns["optimizer"], 1.0)


def _read_sizes(case: Case, optimizers: Sequence[Any]) -> tuple[float, float] | None:
    """Return how many tensors and parameters all optimizers update, None where that does not tell what it takes."""
    entries = [entry for entry in optimizers if isinstance(entry, Mapping)]
    tensors, parameters = ([_read_count(entry.get(name)) for entry in entries] for name in ("tensors", "parameters"))
    if case.device.is_used or min(tensors + parameters, default=0.0) <= 0:
        return None
    return sum(tensors), sum(parameters)


def _read_count(value: object) -> float:
    """Return a number that was noted, 0 for what is none."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else 0.0


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


RULES = (Rule("optimizer_loop", knob="optimizer", effort="flag", judge=_judge, muted_when_input_bound=True),)
