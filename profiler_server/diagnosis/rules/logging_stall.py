"""Logging holds the training thread up."""

from __future__ import annotations

from profiler_server.diagnosis.limits import LOGGING_FRAC
from profiler_server.diagnosis.named import find_in_phases, say_functions
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    logged = case.steps.logged
    if logged is None:
        return None
    outside_ns = case.steps.phases_ns["gap"] + case.steps.phases_ns["tail"]
    spent_ns = min(logged.step_ns, outside_ns)
    share = spent_ns / case.steps.mean_ns
    if share < LOGGING_FRAC:
        return None
    return Finding(
        title=f"Logging holds up the steps: {logged.name}",
        measured=f"{logged.name} was called {logged.calls:,} times on the training thread, {format_duration(logged.step_ns)} "
        f"per {case.steps.noun} ({format_share(share)}); the longest call took {format_duration(logged.longest_ns)}."
        f"{say_functions(find_in_phases(case, 'gap', 'tail'), 'the time outside of training')}",
        threshold=f"At least {format_share(LOGGING_FRAC)} of the {case.steps.noun}, outside of forward, backward and update.",
        advice="Log every n-th step, keep figures as tensors until then, and let another thread write what is large: images, "
        "histograms, anything over a network.",
        change="if step % 50 == 0:\n    log(loss.item())  # not in every step",
        fix="logging every n-th step",
        evidence=(STEPS_PAGE,),
        tier="A",
        what_if=shorten_step(case, "outside", spent_ns, 0.9),
        gain_range=(0.8, 1.1),
    )


RULE = Rule("logging_stall", knob="outside", effort="code", judge=_judge)
