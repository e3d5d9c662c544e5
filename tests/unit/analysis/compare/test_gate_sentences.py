"""What the gate says of a change: the part that makes it up, by its name, the limit, and the counts of runs."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np

from profiler_server.analysis.compare.gate import judge
from profiler_server.analysis.compare.run_times import RunTimes
from profiler_server.report.gate import build_undecided, render_markdown, render_verdict
from profiler_server.report.junit import render_junit

MS = 1e6


def make_sides(longer_ms: float, gap_ms: float = 0.0, kernel: str = "") -> tuple[list[RunTimes], list[RunTimes]]:
    """Five runs of each side: forward takes `longer_ms` more in the new ones and scatters, the gap never does."""
    wobble = (0.0, 3.0, -3.0, 1.5, -1.5)

    def make(at: int, more_ms: float, gap_more_ms: float) -> RunTimes:
        forward = 90.0 + more_ms + wobble[at // 2]
        parts = {"Gap": (1.0 + gap_more_ms + 1e-4 * (at % 3)) * MS, "Forward": forward * MS}
        steps = np.full(50, sum(parts.values()))
        kernels = {kernel: forward * MS} if kernel else {}
        return RunTimes(f"run-{at}", at, "host", "train.py", 1, steps, parts, kernels_ns=kernels)

    base = [make(2 * at, 0.0, 0.0) for at in range(5)]
    return base, [make(2 * at + 1, longer_ms, gap_ms) for at in range(5)]


def test_a_part_that_is_certain_but_makes_up_next_to_nothing_is_not_what_is_named() -> None:
    verdict = judge(*make_sides(3.0, gap_ms=0.005))
    assert [part.name for part in verdict.parts] == ["Gap"]
    assert "most likely it is forward: in the mean step forward is 3.00 ms longer" in verdict.reason
    assert "gap" not in verdict.reason
    assert "in the mean step gap is 2.00 ms longer" in judge(*make_sides(3.0, gap_ms=2.0)).reason


def test_a_kernel_keeps_the_letters_of_its_name() -> None:
    verdict = judge(*make_sides(20.0, kernel="MyKernel<Half>"))
    assert "MyKernel<Half> is 20.0 ms longer" in verdict.reason
    assert "forward is 20.0 ms longer" in verdict.reason


def test_a_slowdown_above_a_limit_says_which() -> None:
    sides = make_sides(20.0)
    assert ", above the limit of 3.0 %; in the mean step forward" in judge(*sides, max_slowdown=0.03).reason
    assert "limit" not in judge(*sides).reason


def test_counts_of_runs_and_the_rank_stand_in_every_form() -> None:
    base, new = make_sides(0.0)
    few = render_verdict(judge(base, new[:1]))
    assert few.startswith("Gate undecided (1 run against 5). 1 run against 5 of the base: at least 3 of each side")
    base, new = ([replace(run, world_size=4, rank=2) for run in runs] for runs in (base, new))
    verdict = judge(base, new)
    assert "(5 runs against 5, rank 2 of 4)" in render_verdict(verdict)
    assert render_markdown(verdict).startswith("**Step time of rank 2 of 4: passed.**")
    case = ElementTree.fromstring(render_junit(verdict)).find("testcase")
    assert case is not None
    assert case.get("name") == "step time of rank 2 of 4"


def test_what_could_not_be_read_is_an_error_in_every_form() -> None:
    verdict = build_undecided("runs/a has no table 'steps'")
    assert render_verdict(verdict) == "Gate undecided. runs/a has no table 'steps'."
    assert render_markdown(verdict) == "**Step time: undecided.** runs/a has no table 'steps'.\n"
    error = ElementTree.fromstring(render_junit(verdict)).find("testcase/error")
    assert error is not None
    assert error.get("message") == "runs/a has no table 'steps'."
