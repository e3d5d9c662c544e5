"""The work of the recorded thread in a step, apart from operators: between the calls, within them, and in the update."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collector.format.phases import OUTSIDE
from profiler_server.diagnosis.limits import thread as limits
from profiler_server.diagnosis.limits.facts import FEW_ROWS_FRAC, LARGE_PART_FRAC, MIN_GAIN_FRAC, MIN_GAIN_NS
from profiler_server.diagnosis.what_if import doubt_removal, measure_garbage_outside, predict_or, shorten_step
from profiler_server.facts.case import Abstention, Case, Finding, Rule
from profiler_server.facts.steps import NamedFunction, read_column
from profiler_server.format import form_plural, format_count, format_duration, say
from profiler_server.words.phrases import (
    FUNCTIONS,
    acts_in_steps,
    describe,
    find_dominant,
    find_in_phases,
    name_parts,
    say_functions,
)


def _judge_outside(case: Case) -> Finding | None:
    """Time between the known calls of a step: logging, metrics, the user's Python, the environment of a model that acts."""
    spent_ns = sum(case.steps.phases_ns[name] for name in OUTSIDE)
    logged = case.steps.logged
    logged_ns = min(logged.step_ns, spent_ns) if logged is not None else 0.0
    is_logging = logged_ns >= limits.LOGGED_FRAC * spent_ns
    found = None if is_logging or _collects(case, spent_ns) or _is_forward(case) else _judge_gap(case, spent_ns)
    return found or _judge_logging(case, logged_ns)


def _judge_logging(case: Case, spent_ns: float) -> Finding | None:
    share = spent_ns / case.steps.mean_ns
    if share < limits.LOGGING_FRAC:
        return None
    functions = say_functions(find_in_phases(case, *OUTSIDE), "this time")
    return Finding(
        describe(case, "python_gap.logged", logged=case.steps.logged, share=share, functions=functions),
        what_if=shorten_step(case, "outside", spent_ns, 1.0 - 1.0 / limits.RARER_STEPS),
        doubt_frac=0.1,
        least_frac=0.8,
    )


def _collects(case: Case, outside_ns: float) -> bool:
    """Return whether most of the time outside the known calls is garbage collection, which has its own rule."""
    return measure_garbage_outside(case) >= limits.COLLECTED_FRAC * outside_ns


def _is_forward(case: Case) -> bool:
    """Return whether most of the time outside the known calls is a forward without modules.

    A line belongs to such a forward if the backward computes gradients of its operators.
    """
    lines = case.lines.hotspots if case.lines is not None else ()
    outside = [(spot, sum(spot.phases.get(phase, 0.0) for phase in OUTSIDE)) for spot in lines]
    graded = sum(share for spot, share in outside if spot.backward_frac >= limits.GRADED_FRAC * share > 0)
    return graded >= 0.5 * case.steps.share(*OUTSIDE)


def _judge_gap(case: Case, spent: float) -> Finding | None:
    if case.device.is_used:  # the host waits for the device in these phases; only device times can give the reason
        return None
    regular = case.steps.selection.regular
    outside = sum(read_column(case.steps.rows, f"{name}_ns")[regular] for name in OUTSIDE)
    typical = float(np.median(outside))
    # Garbage collection runs where objects are made. Its part of this time vanishes with the work that makes the
    # objects.
    collected = np.minimum(read_column(case.steps.rows, "gc_ns")[regular], np.maximum(outside - typical, 0))
    share = typical / case.steps.mean_ns
    if share < limits.OUTSIDE_FRAC:
        return None
    longer = "gap" if case.steps.regular_phases_ns["gap"] > case.steps.regular_phases_ns["tail"] else "tail"
    is_fed = bool(read_column(case.steps.rows, "fetches").any() or case.steps.regular_phases_ns["data_wait"])
    told = f"; half of the {form_plural(case.steps.noun)} spend at least {format_duration(typical)}"
    part = find_in_phases(case, *OUTSIDE)
    culprit = find_dominant(part)
    is_acting = longer == "gap" and acts_in_steps(case)
    is_asking = longer == "gap" and not is_acting and culprit is not None and case.asks_outside
    place = "asking" if is_asking else "acting" if is_acting else "tail" if longer == "tail" else "fetch"
    text = describe(
        case,
        "python_gap.asking" if is_asking else _name_gap(longer, is_acting, is_fed, culprit),
        place_in_step=say("outside", place),
        spent_ns=spent,
        share=case.steps.share(*OUTSIDE),
        usual="" if abs(typical / spent - 1.0) < limits.ALIKE_FRAC else told,
        functions=say_functions(part, "this time"),
        unwatched="" if is_fed else _UNWATCHED,
        **({} if culprit is None else name_parts(culprit)),
    )
    if culprit is None:
        saved_frac = 1.0 if is_acting else 1.0 - 1.0 / limits.RARER_STEPS
        what_if = shorten_step(case, "outside", min(typical + float(collected.mean()), spent), saved_frac)
        found = Finding(text, what_if=what_if, doubt_frac=0.1, least_frac=limits.LEAST_OUTSIDE_SAVED)
    else:  # the change removes the function with most of the time, and not a share of everything
        what_if = shorten_step(case, "outside", spent, culprit.share_frac)
        found = doubt_removal(Finding(text, evidence=(FUNCTIONS,), what_if=what_if), culprit)
    # In a step of a few milliseconds no gain is long enough to be promised, whatever its share.
    is_brief = (
        case.steps.phases_ns["forward"] > 0
        and share >= LARGE_PART_FRAC
        and typical * limits.LEAST_OUTSIDE_SAVED < MIN_GAIN_NS
    )
    return replace(found, otherwise=replace(found, what_if=None, severity="low")) if is_brief else found


_UNWATCHED = (
    " No input of the steps was seen: if this time is your input, wrap it, for batch in stepscope.watch(batches), "
    "and it counts as data wait."
)


def _name_gap(longer: str, is_acting: bool, is_fed: bool, culprit: NamedFunction | None) -> str:
    if is_acting:
        return "python_gap.acting" if culprit is None else "python_gap.acting_named"
    if culprit is None:
        return "python_gap"
    return "python_gap.named" if is_fed or longer == "tail" else "python_gap.unfed_named"


_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers that have a fused form on every device."""
_FOREACH = ("Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def _judge_optimizer_loop(case: Case) -> Finding | Abstention | None:
    """The parameter update loops over tensors in Python, one small operator after the other."""
    share = case.steps.share("optimizer")
    if share < limits.UPDATE_FRAC:
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
    if _limit_saved(case, optimizers) * share < MIN_GAIN_FRAC or _is_unread(case, optimizers, share):
        return None
    saved, least, most = _find_saved(case, optimizers) if flag == "fused" else limits.LOOP_SAVED
    over = f" over {format_count(tensors)} tensors" if isinstance(tensors, int) else ""
    finding = Finding(
        describe(case, "optimizer_loop", name=name, update_ns=update_ns, share=share, over=over, flag=flag),
        what_if=shorten_step(case, "optimizer", update_ns, saved),
        doubt_frac=max(saved - least, most - saved) / saved,
        least_frac=least / saved,
    )
    return predict_or(case, finding, "optimizer", "update")


def _is_unread(case: Case, optimizers: Sequence[Any], share: float) -> bool:
    """Return whether sparse gradients can gain more than the whole update takes. They can if a step reads only a few
    rows of the tables for lookups."""
    sizes, kinds = _read_sizes(case, optimizers), case.steps.kinds
    if sizes is None or not kinds.lookups_frac or kinds.rows_frac > FEW_ROWS_FRAC:
        return False
    return kinds.find_dense_frac(share, sizes[1]) >= max(share, LARGE_PART_FRAC)


def _find_saved(case: Case, optimizers: Sequence[Any]) -> tuple[float, float, float]:
    """Return the share of the update that fused optimizers save: usually, at least and at most.

    A fused update has a cost per tensor and per parameter. A loop costs as much as its operators take.
    """
    sizes = _read_sizes(case, optimizers)
    if sizes is None:
        return limits.LOOP_SAVED
    tensors, parameters = sizes
    each_ns = (
        len(optimizers) * limits.FUSED_UPDATE_NS
        + tensors * limits.FUSED_TENSOR_NS
        + parameters * limits.FUSED_PARAMETER_NS
    )
    left, limit = each_ns / case.steps.phases_ns["optimizer"], _limit_saved(case, optimizers)
    usual, least, most = (
        max(min(1.0 - left * times, limit), limits.LEAST_UPDATE_SAVED)
        for times in (1.0, limits.MOST_FUSED, limits.LEAST_FUSED)
    )
    return usual, least, most


def _limit_saved(case: Case, optimizers: Sequence[Any]) -> float:
    """Return the largest possible share of the update that is spent in loops over tensors; 1 if unknown."""
    sizes = _read_sizes(case, optimizers)
    if sizes is None:
        return 1.0
    tensors, parameters = sizes
    looped_ns = tensors * limits.LOOPED_TENSOR_NS + parameters * limits.LOOPED_PARAMETER_NS
    return min(looped_ns / case.steps.phases_ns["optimizer"], 1.0)


def _read_sizes(case: Case, optimizers: Sequence[Any]) -> tuple[float, float] | None:
    """Return how many tensors and parameters all optimizers update; None if unknown, or with a device."""
    entries = [entry for entry in optimizers if isinstance(entry, Mapping)]
    tensors, parameters = ([_read_count(entry.get(name)) for entry in entries] for name in ("tensors", "parameters"))
    if case.device.is_used or min(tensors + parameters, default=0.0) <= 0:
        return None
    return sum(tensors), sum(parameters)


def _read_count(value: object) -> float:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else 0.0


def _read_optimizers(case: Case) -> list[Mapping[str, Any]]:
    """Return the optimizers whose loops a detailed window shows, for runs without recorded settings of optimizers."""
    replay = case.device.replay
    seen = replay.seen.get("update_loops") if replay is not None else None
    names = [_STEP.fullmatch(name) for name in seen.examples] if seen is not None else []
    return [{"name": found[1], "foreach": False} for found in names if found is not None]


def _loops(case: Case, optimizer: Mapping[str, Any]) -> bool:
    """Return whether an optimizer loops over tensors in Python. PyTorch's default is foreach on CUDA devices only."""
    if optimizer.get("name") not in (*_FUSED, *_FOREACH) or optimizer.get("fused"):
        return False
    if optimizer.get("name") == "SGD" and optimizer.get("momentum") is False and not case.device.is_used:
        return False  # the update is one pass over the parameters already: on a processor there is nothing to fuse
    if optimizer.get("foreach") is None:
        return not case.device.is_used
    return not optimizer.get("foreach")


RULES = (
    Rule("python_gap", knob="outside", effort="code", judge=_judge_outside, muted_when_input_bound=True),
    Rule("optimizer_loop", knob="optimizer", effort="flag", judge=_judge_optimizer_loop, muted_when_input_bound=True),
)
