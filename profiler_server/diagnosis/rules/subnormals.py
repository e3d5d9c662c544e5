"""Numbers so close to zero that the processor computes with them many times more slowly (needs the probe)."""

from __future__ import annotations

from profiler_server.diagnosis.limits import SUBNORMAL_FRAC, SUBNORMAL_SLOWER
from profiler_server.diagnosis.what_if import shorten_phases
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.machine import Subnormals
from profiler_server.format import format_count, format_share

_PHASES = {
    "parameters": ("forward", "backward", "optimizer"),
    "gradients": ("backward", "optimizer"),
    "states": ("optimizer",),
}
"""What computes with each kind of number."""
_ARITHMETIC_FRAC = 0.75
_WORDS = {"parameters": "parameters", "gradients": "gradients", "states": "states of the optimizer"}


def _judge(case: Case) -> Finding | None:
    """Say it where multiplying copies of them was slow.

    Source: the probe. It counts the subnormal among up to 327,680 numbers of each kind, and multiplies them by 0.75, as they
    are and flushed to zero. What that saves of them is taken of three quarters of the phases that use such numbers.
    """
    slow = [group for group in case.subnormals if _is_slow(group)]
    if case.device.is_used or not slow:
        return None
    phases = max((_PHASES[group.group] for group in slow), key=len)
    plain_ns, flushed_ns = sum(group.plain_ns for group in slow), sum(group.flushed_ns for group in slow)
    saved_frac = _ARITHMETIC_FRAC * (1.0 - flushed_ns / plain_ns)
    found = "; ".join(
        f"{format_share(group.share_frac)} of the {_WORDS[group.group]} are subnormal "
        f"({format_count(group.subnormal)} of {format_count(group.count)} looked at)"
        for group in slow
    )
    return Finding(
        title="The processor computes with subnormal numbers",
        measured=f"{found}. Multiplying copies of them took {plain_ns / flushed_ns:.1f} times as long as with those flushed to "
        "zero, as the probe measured between two steps.",
        threshold=f"At least {format_share(SUBNORMAL_FRAC)} subnormal numbers, and a multiplication that takes at least "
        f"{SUBNORMAL_SLOWER:g} times as long.",
        advice="float32 numbers below 1.2e-38 have no normal form, and most processors handle them by a slow path. Flush them to "
        "zero: call it before the first operator, and in each thread of yours that computes. It changes results by less than "
        "1.2e-38 per number. If much of the model is that small, look why: weight decay, a dead layer or a loss scale.",
        change="torch.set_flush_denormal(True)",
        fix="subnormals flushed to zero",
        evidence=(STEPS_PAGE,),
        assumption="three quarters of the time of these phases is arithmetic on such numbers",
        what_if=shorten_phases(case, phases, saved_frac),
        # Products of matrices may be slower still than the single multiplications that were timed.
        gain_range=(0.25, 1.0 / saved_frac),
    )


def _is_slow(group: Subnormals) -> bool:
    return group.share_frac >= SUBNORMAL_FRAC and group.slower >= SUBNORMAL_SLOWER


RULE = Rule("subnormals", knob="subnormals", effort="flag", judge=_judge, muted_when_input_bound=True)
