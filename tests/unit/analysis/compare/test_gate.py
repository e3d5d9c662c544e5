"""The gate does not cry wolf: identical programs pass, slower ones fail, and too little evidence is said to be that."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from collector.format.run import open_run
from profiler_server.analysis.compare.gate import DETECTABLE, find_like, judge
from profiler_server.analysis.compare.run_statistics import (
    count_pairs,
)
from profiler_server.analysis.compare.run_times import MOST_KERNELS, RunTimes, are_interleaved, gather_parts, read_times
from profiler_server.report.gate import build_undecided, render_junit, render_markdown, render_verdict
from tests.support.live import edit_run
from tests.support.must import must
from tests.support.run_times import make_times
from tests.support.runs import RunPlan, build_run

MS = 1e6


def make_run(
    random: np.random.Generator, at: int, *, factor: float = 1.0, scatter: float = 0.01, wait: float = 10.0
) -> RunTimes:
    """A run of 100 steps of about 100 ms; the whole run is off by `scatter`, its steps by 2 %, some by half."""
    level = 100 * MS * factor * np.exp(scatter * random.standard_normal())
    steps = level * (1 + 0.02 * random.standard_normal(100) + 0.5 * (random.random(100) < 0.02))
    parts = {"Data wait": wait * MS * (1 + 0.01 * random.standard_normal()), "Forward": level * 0.9}
    return make_times(at, steps, parts, others_cores=0.1, cores=2.0)


def make_pairs(
    seed: int, pairs: int, factor: float = 1.0, scatter: float = 0.01
) -> tuple[list[RunTimes], list[RunTimes]]:
    """Pairs in which the base comes first in the first, third … and second in the others."""
    random = np.random.default_rng(seed)
    base = [make_run(random, 2 * at + at % 2, scatter=scatter) for at in range(pairs)]
    return base, [make_run(random, 2 * at + 1 - at % 2, factor=factor, scatter=scatter) for at in range(pairs)]


@pytest.mark.parametrize("pairs", [3, 5])
def test_a_program_is_rarely_slower_than_itself(pairs: int) -> None:
    alarms = sum(judge(*make_pairs(seed, pairs)).kind == "slower" for seed in range(160))
    assert alarms <= 0.09 * 160  # 5 % is promised; 160 tries scatter by 1.7 %


def test_runs_that_are_set_against_themselves_are_the_same() -> None:
    runs, _ = make_pairs(0, 4)
    verdict = judge(runs, runs)
    assert (verdict.kind, verdict.reason.partition(":")[0]) == ("same", "No slowdown of more than 5.0 %")
    assert not any("mean step" in caution for caution in verdict.cautions)


def test_a_slowdown_below_the_limit_passes() -> None:
    verdict = judge(*make_pairs(1, 8, factor=1.02, scatter=0.002), max_slowdown=0.03)
    assert verdict.kind == "same"
    assert judge(*make_pairs(1, 8, factor=1.05, scatter=0.002), max_slowdown=0.03).kind == "slower"


def test_a_faster_program_is_called_faster() -> None:
    assert judge(*make_pairs(2, 5, factor=0.9)).kind == "faster"


def test_runs_whose_scatter_could_hide_the_limit_are_not_judged() -> None:
    verdict = judge(*make_pairs(5, 3, scatter=0.1), max_slowdown=0.03)
    assert verdict.kind == "unknown"
    assert verdict.reason.startswith("It is not known whether the median step is slower: it changed by ")
    assert verdict.estimate is not None
    assert verdict.estimate.detectable > 0.03


def test_an_undecided_verdict_says_how_many_pairs_would_decide() -> None:
    verdict = judge(*make_pairs(5, 5, scatter=0.03))
    assert verdict.kind == "unknown"
    found = must(re.search(r"about (\d+) pairs would tell 5\.0 %", verdict.reason))
    assert verdict.estimate is not None
    assert int(found[1]) == count_pairs(verdict.estimate.scatter, 0.05)
    noisy = judge(*make_pairs(5, 3, scatter=0.5))
    assert "Even 100 pairs would hardly tell 5.0 %" in noisy.reason


def test_one_pair_gives_a_difference_and_no_verdict() -> None:
    verdict = judge(*make_pairs(0, 1, factor=1.5))
    assert verdict.kind == "unknown"
    assert "Within this pair the median step differs by +" in verdict.reason
    assert "at least 3 runs of each side" in verdict.reason


def test_one_pair_is_judged_by_the_scatter_of_earlier_runs() -> None:
    random = np.random.default_rng(3)
    like = [make_run(random, at) for at in range(8)]
    base, new = make_pairs(0, 1, factor=1.2)
    assert judge(base, new, like=like).kind == "slower"
    assert judge(base, make_pairs(1, 1)[1], like=like).kind != "slower"
    assert judge(base, new, like=like[:4]).kind == "unknown"


def test_only_runs_of_the_same_script_host_and_ranks_are_alike() -> None:
    base = make_run(np.random.default_rng(0), 0)
    others = [replace(base, script="other.py"), replace(base, host="other"), replace(base, world_size=8), base]
    assert find_like(others, base) == (base,)
    assert find_like([replace(base, script="")], replace(base, script="")) == ()


def test_pairs_are_told_by_the_order_of_recording() -> None:
    base, new = make_pairs(0, 4)
    assert are_interleaved(base, new)
    assert not are_interleaved(base, new[:3])
    late = [replace(run, started_unix_ns=run.started_unix_ns + 100) for run in new]
    assert not are_interleaved(base, late)


def test_a_busy_host_another_script_and_a_run_given_twice_are_named() -> None:
    base, new = make_pairs(0, 3)
    busy = replace(new[0], others_cores=0.6)
    other = replace(new[1], script="other.py")
    cautions = judge(base, [busy, other, other]).cautions
    assert "other programs used 0.6 of 2 cores while run-1 ran" in cautions
    assert any("different scripts: train.py and other.py" in caution for caution in cautions)
    assert "run-2 was given twice" in cautions
    assert judge(base, [replace(new[0], others_cores=0.5), *new[1:]]).cautions == ()


def test_a_phase_is_named_even_where_no_part_is_certain_by_itself() -> None:
    random = np.random.default_rng(4)

    def make(at: int, factor: float) -> RunTimes:
        run = make_run(random, at, factor=factor)
        waits = (10.0 + (8, -8, 4, -4, 0)[at // 2] + (factor - 1) * 100) * MS
        return replace(run, parts_ns={"Data wait": waits, "Forward": 90.0 * MS})

    verdict = judge([make(2 * at, 1.0) for at in range(5)], [make(2 * at + 1, 1.06) for at in range(5)])
    assert (verdict.kind, verdict.parts) == ("slower", ())
    assert verdict.leading is not None
    assert "most likely it is data wait: in the mean step data wait is " in verdict.reason


def test_a_run_that_takes_many_times_as_long_is_said_so_and_not_in_percent() -> None:
    assert re.match(
        r"The median step is (9\.9|10\.\d) times as long \(\+", judge(*make_pairs(0, 5, factor=10.0)).reason
    )
    assert re.match(r"The median step is \d\d\.\d % slower \(\+", judge(*make_pairs(0, 5, factor=1.5)).reason)


def test_a_slowdown_while_other_programs_ran_on_one_side_only_is_not_judged() -> None:
    base, new = make_pairs(0, 5, factor=1.1)
    assert judge(base, new).kind == "slower"
    busy = judge(base, [replace(run, others_cores=1.2) for run in new])
    assert busy.kind == "unknown"
    assert "they used 1.2 of 2 cores during these runs and 0.1 during those of the base" in busy.reason
    # On both sides alike they are no reason for a difference; and a busy base hides nothing where the new is slower.
    busy_base, busy_new = ([replace(run, others_cores=1.2) for run in runs] for runs in (base, new))
    assert judge(busy_base, busy_new).kind == "slower"
    assert judge(busy_base, new).kind == "slower"
    hidden = judge(busy_base, make_pairs(0, 5)[1])
    assert (hidden.kind, "may hide a slowdown" in hidden.reason) == ("unknown", True)


def test_many_busy_runs_are_named_in_one_sentence() -> None:
    base, new = ([replace(run, others_cores=0.9) for run in runs] for runs in make_pairs(0, 5))
    busy = [caution for caution in judge(base, new).cautions if "other programs" in caution]
    assert len(busy) == 1
    assert busy[0].endswith("up to 0.9 of 2 cores while all 10 runs were recorded")


def test_a_kernel_is_compared_where_every_run_has_kernels_and_then_in_all_of_them() -> None:
    base, new = make_pairs(0, 3)
    times = {f"kernel {at}": 1000.0 - at for at in range(MOST_KERNELS + 1)}
    grown = {**times, f"kernel {MOST_KERNELS}": 2000.0}
    with_kernels = [replace(run, kernels_ns=times) for run in base], [replace(run, kernels_ns=grown) for run in new]
    before, after = gather_parts(*with_kernels)
    assert before[0].keys() == after[0].keys()
    assert f"kernel {MOST_KERNELS}" in before[0]
    assert f"kernel {MOST_KERNELS - 1}" not in after[0]
    without, _ = gather_parts(base, with_kernels[1])
    assert without[0].keys() == base[0].parts_ns.keys()


def test_sides_that_were_recorded_one_after_the_other_are_named_and_so_are_runs_that_crashed() -> None:
    base, new = make_pairs(0, 3)
    late = [replace(run, started_unix_ns=run.started_unix_ns + 100) for run in new]
    assert any("were all recorded before those of the other" in caution for caution in judge(base, late).cautions)
    assert "run-1 crashed" in judge(base, [replace(new[0], state="crashed"), *new[1:]]).cautions


def test_the_change_within_each_pair_is_listed_so_that_the_verdict_can_be_worked_out_again() -> None:
    base, new = make_pairs(4, 5, factor=1.05)
    verdict = judge(base, new)
    assert [(pair.base, pair.new) for pair in verdict.pairs][:2] == [("run-0", "run-1"), ("run-3", "run-2")]
    changes = [np.median(b.steps_ns) / np.median(a.steps_ns) - 1 for a, b in zip(base, new, strict=True)]
    assert [pair.change for pair in verdict.pairs] == pytest.approx(changes)
    assert verdict.estimate is not None
    assert (verdict.estimate.least, verdict.estimate.most) == pytest.approx((min(changes), max(changes)))
    text, markdown = render_verdict(verdict), render_markdown(verdict)
    for pair in verdict.pairs:
        line = next(line for line in text.splitlines() if line.startswith(f"  {pair.base}, {pair.new} "))
        _, before, _, after, _, change, _ = line.rsplit(maxsplit=6)
        assert float(after) / float(before) - 1 == pytest.approx(pair.change, abs=2e-4)
        assert change == f"{100 * pair.change:+.1f}"
        assert f"| {pair.base}, {pair.new} | {before} ms | {after} ms | {change} % |" in markdown
    assert judge(base, new[:4]).pairs == ()


@pytest.mark.parametrize(("factor", "kind", "tag"), [(1.1, "slower", "failure"), (1.0, "same", "system-out")])
def test_a_ci_system_reads_the_figures_of_every_verdict(factor: float, kind: str, tag: str) -> None:
    verdict = replace(judge(*make_pairs(0, 8, factor=factor)), cautions=("a < b & c",))
    assert verdict.kind == kind
    suite = ElementTree.fromstring(render_junit(verdict))
    found = must(suite.find(f".//{tag}"))
    assert "Noise floor" in (found.text or "")
    assert "a < b & c" in (found.text or "")


def test_the_ends_that_are_said_never_contradict_the_verdict() -> None:
    for seed in range(80):
        estimate = must((verdict := judge(*make_pairs(seed, 3 + seed % 5, factor=1.03, scatter=0.02))).estimate)
        assert (estimate.least > 0) == (verdict.kind == "slower")
        assert verdict.kind != "same" or estimate.most <= DETECTABLE
        assert verdict.kind != "faster" or estimate.most < 0


def test_names_of_the_user_steer_neither_a_terminal_nor_xml(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x00\u202e</failure>"
    for name in ("base", "new"):
        run = build_run(tmp_path / name, RunPlan(steps=20, operators=False))
        edit_run(run, name=evil, script=f"{evil}{name}", host=f"{name}{evil}")
    base, new = (read_times(open_run(tmp_path / name)) for name in ("base", "new"))
    verdict = judge([base], [new])
    assert len(verdict.cautions) == 3
    assert all(line.isprintable() for line in render_verdict(verdict).splitlines())
    assert "]0;owned" in (ElementTree.fromstring(render_junit(verdict)).findtext("testcase/error") or "")
    assert "<" not in render_markdown(verdict)


def make_sides(longer_ms: float, gap_ms: float = 0.0, kernel: str = "") -> tuple[list[RunTimes], list[RunTimes]]:
    """Five runs of each side: forward takes `longer_ms` more in the new ones and scatters, the gap never does."""
    wobble = (0.0, 3.0, -3.0, 1.5, -1.5)

    def make(at: int, more_ms: float, gap_more_ms: float) -> RunTimes:
        forward = 90.0 + more_ms + wobble[at // 2]
        parts = {"Gap": (1.0 + gap_more_ms + 1e-4 * (at % 3)) * MS, "Forward": forward * MS}
        steps = np.full(50, sum(parts.values()))
        kernels = {kernel: forward * MS} if kernel else {}
        return make_times(at, steps, parts, kernels_ns=kernels)

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
    case = must(ElementTree.fromstring(render_junit(verdict)).find("testcase"))
    assert case.get("name") == "step time of rank 2 of 4"


def test_what_could_not_be_read_is_an_error_in_every_form() -> None:
    verdict = build_undecided("runs/a has no table 'steps'")
    assert render_verdict(verdict) == "Gate undecided. runs/a has no table 'steps'."
    assert render_markdown(verdict) == "**Step time: undecided.** runs/a has no table 'steps'.\n"
    error = must(ElementTree.fromstring(render_junit(verdict)).find("testcase/error"))
    assert error.get("message") == "runs/a has no table 'steps'."
