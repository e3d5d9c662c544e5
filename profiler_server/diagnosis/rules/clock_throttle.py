"""Heat, or another limit of the hardware, holds the clock of a GPU down."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CLOCK_LOST_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention, Evidence
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | Abstention | None:
    held = case.device.held_clock
    if held is None or held.lost_frac < CLOCK_LOST_FRAC:
        return None
    shares = case.device.shares
    if shares is None:
        how = "Record with a detailed window: Profiler(window=…)."
        return Abstention("clock_throttle", "how much of the step the device computes", how)
    lost_ns = held.lost_frac * shares.compute * case.steps.mean_ns
    why = "heat" if held.is_heat else "a limit of the hardware"
    return Finding(
        title=f"The clock of {held.gpu} is held down by {why}",
        measured=f"In {format_share(held.held_frac)} of the samples {why} held it at {held.clock_hz / 1e6:.0f} MHz; otherwise it "
        f"reaches {held.usual_hz / 1e6:.0f} MHz. The device computes {format_share(shares.compute)} of the {case.steps.noun}.",
        threshold=f"At least {format_share(CLOCK_LOST_FRAC)} of the clock lost over all samples.",
        advice="Look at its cooling and at what else warms the machine: fans, dust, neighbours, the room. A lower power limit "
        "keeps a hot device at a steadier clock.",
        change="nvidia-smi -q -d TEMPERATURE,CLOCK,PERFORMANCE",
        fix="a device that stays cool",
        evidence=(Evidence("device", "", "Clock and temperature over the steps"),),
        assumption="kernels are as much faster as the clock",
        what_if=shorten_step(case, "kernels", lost_ns, 1.0),
        gain_range=(0.4, 1.1),
    )


RULE = Rule("clock_throttle", knob="clock", effort="code", judge=_judge)
