"""Python's garbage collector runs during the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector.format.steps import read_integers
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule, WhatIf
from profiler_server.diagnosis.limits import GC_FRAC
from profiler_server.diagnosis.stalls import sum_in_steps
from profiler_server.diagnosis.what_if import measure_garbage_outside, shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    # What is collected while a function is compiled goes with the compilation.
    compiles = sum_in_steps(case, case.steps.interruptions.of_kind("compile", "recompile")) > 0
    gc_ns = np.where(compiles, 0, read_integers(case.steps.rows, "gc_ns"))[case.steps.selection.kept]
    mean = float(gc_ns.mean())
    if mean < GC_FRAC * case.steps.mean_ns:
        return None
    steps = int((gc_ns > 0).sum())
    return Finding(
        title="Garbage collection interrupts the steps",
        measured=f"It takes {format_duration(mean)} per step ({format_share(mean / case.steps.mean_ns)}), "
        f"in {steps} of {len(gc_ns)} steps; "
        f"the longest took {format_duration(int(gc_ns.max()))}.",
        threshold=f"At least {format_share(GC_FRAC)} of the step.",
        advice="Freeze the objects that live through the whole run, switch automatic collection off, and collect when it suits.",
        change="gc.collect()\ngc.freeze()\ngc.disable()\nfor step, batch in enumerate(loader):\n    ...\n"
        "    if step % 1000 == 0:\n        gc.collect()",
        fix="gc.freeze() and gc.disable()",
        evidence=(STEPS_PAGE,),
        what_if=_stop_collecting(case, mean),
        tier="A",
        gain_range=(0.8, 1.05),
    )


def _stop_collecting(case: Case, mean_ns: float) -> WhatIf:
    """Return the what-if, which shortens what lies outside of training as far as the collections lie there.

    Less work there would take those away, too: both together save them once.
    """
    outside_ns = min(measure_garbage_outside(case), mean_ns)
    found = shorten_step(case, "gc", mean_ns, 0.95)
    return replace(found, touches={"outside": outside_ns, "gc": mean_ns - outside_ns})


RULE = Rule("gc_pauses", knob="gc", effort="code", judge=_judge)
