"""The rule on a slow rank and the Ranks page say the same, because one function decides."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from collector.format.run import Run, open_run
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.limits.facts import NOISY_FRAC
from profiler_server.diagnosis.rank_sentences import describe_straggler
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.diagnosis.rules.ranks import RULES
from profiler_server.diagnosis.what_if import feed, shorten_phases
from profiler_server.facts.case import Case, Finding, Rule, Text, WhatIf
from profiler_server.facts.job import Alike, Peer, RankVerdict, Slow, Turns
from profiler_server.format import format_duration
from profiler_server.report.brief import write_brief
from tests.support import facts as make
from tests.support.cases import PLANTED, build_case_run, plan_of
from tests.support.diagnosing import measure
from tests.support.machines import build_collectives, build_edited
from tests.support.row_edits import Row, lay_end_to_end, write_rows
from tests.support.runs import MS, build_steps
from tests.support.stacks import in_phase, own
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.noted import compared, judged

WORKS = ("communication", "backward")
"""What two ranks do longer of which the second is slow."""


def lengthen(rows: list[Row], **phases_ms: int) -> None:
    for row in rows:
        for phase, by_ms in phases_ms.items():
            row[f"{phase}_ns"] += by_ms * MS


def build_ranks(path: Path, behind_ms: float, noise_ms: float) -> Run:
    """Two ranks of 60 steps that vary together by so much, of which rank 1 is slower in each step."""
    plan = dataclasses.replace(plan_of(), ranks=2, steps=60)
    noise = np.random.default_rng(3).exponential(noise_ms, 60)

    def edit(rank: int, rows: list[Row]) -> None:
        for row, extra_ms in zip(rows, noise, strict=True):
            row["backward_ns"] += int((extra_ms + rank * behind_ms) * MS)
            row["communication_ns"] += int((1 - rank) * behind_ms * MS)

    return open_run(build_edited(path, plan, edit))


@pytest.mark.parametrize(("behind_ms", "noise_ms"), [(0.0, 30.0), (4.0, 0.0), (4.0, 30.0), (30.0, 30.0)])
def test_the_rule_never_speaks_where_the_page_speaks_of_chance(
    behind_ms: float, noise_ms: float, tmp_path: Path
) -> None:
    run = build_ranks(tmp_path / "run", behind_ms, noise_ms)
    says = any(entry.rule == "fixed_straggler" for entry in diagnose(run, 0).suggestions)
    page = describe_straggler(judge_ranks(summarize_ranks(run)))
    assert says == page.startswith("Rank 1 holds the other rank up")
    assert not (says and "chance" in page)


def test_a_rank_that_is_behind_in_every_step_is_no_chance_however_much_steps_vary(tmp_path: Path) -> None:
    run = build_ranks(tmp_path / "run", 20.0, 60.0)
    found = judge_ranks(summarize_ranks(run))
    assert isinstance(found, Slow)
    assert found.culprits == (1,)
    first = next(entry for entry in diagnose(run, 0).suggestions if entry.rule == "fixed_straggler")
    assert first.title == "Rank 1 is slower than the other rank"


@pytest.fixture
def slow_loader(tmp_path: Path) -> Run:
    """Four ranks that vary each by itself; rank 2 waits 30 ms longer for its data in each step."""
    plan = dataclasses.replace(plan_of(), ranks=4, steps=80)
    extra = np.random.default_rng(5).exponential(8.0, (4, 80))
    extra[2] += 30.0

    def edit(rank: int, rows: list[Row]) -> None:
        for row, ours, last in zip(rows, extra[rank], extra.max(axis=0), strict=True):
            row["data_wait_ns"] += int(ours * MS)
            row["communication_ns"] += int((last - ours) * MS)

    return open_run(build_edited(tmp_path / "run", plan, edit))


def test_every_page_says_the_same_of_one_slow_loader(slow_loader: Run) -> None:
    judged = judge_ranks(summarize_ranks(slow_loader))
    assert isinstance(judged, Slow)
    gain = format_duration(judged.gain_ns)
    assert describe_straggler(judged).startswith(f"Rank 2 holds 3 others up {gain} a step (")
    assert format_duration(judged.comparison.blame_ns[2]) == gain
    for rank in range(4):
        assert diagnose(slow_loader, rank).sentence.startswith(describe_straggler(judged))
        (found,) = (entry for entry in diagnose(slow_loader, rank).suggestions if entry.rule == "slow_rank_loader")
        assert found.predicted_step_ns is not None
        assert found.predicted_low_ns is not None
        assert found.predicted_high_ns is not None
        assert found.predicted_step_ns == pytest.approx(judged.comparison.step_ns - judged.gain_ns, rel=1e-3)
        assert found.predicted_low_ns < found.predicted_step_ns - 2 * MS
        assert found.predicted_step_ns + 2 * MS < found.predicted_high_ns
        assert f"it holds them up {gain} a step" in found.measured


def test_two_slow_ranks_hold_the_others_up_together(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_of(), ranks=6, steps=60)

    def edit(rank: int, rows: list[Row]) -> None:
        slow = {4: 20, 5: 21}.get(rank, 0)
        lengthen(rows, backward=slow, communication=21 - slow)

    run = open_run(build_edited(tmp_path / "run", plan, edit))
    judged = judge_ranks(summarize_ranks(run))
    assert judged.culprits == (5, 4)
    assert describe_straggler(judged).startswith("Ranks 4, 5 hold 4 others up 21.0 ms a step (")
    found = next(entry for entry in diagnose(run, 0).suggestions if entry.rule == "fixed_straggler")
    assert found.title == "Rank 5 is slower than the others"
    assert "behind the median of the others" in found.measured
    assert "they wait for it, 21.0 ms a step" in found.measured


def test_the_slow_rank_comes_before_communication_in_general(tmp_path: Path) -> None:
    plan = dataclasses.replace(plan_of(communication=45.0), ranks=2, steps=60)
    path = build_edited(tmp_path / "run", plan, lambda rank, rows: lengthen(rows, **{WORKS[rank]: 20}))
    said = [entry.rule for entry in diagnose(open_run(path), 0).suggestions]
    assert said[0] == "fixed_straggler"
    assert "exposed_all_reduce" in said
    lines = write_brief(open_run(path))
    assert lines[1].startswith("To change first: a rank 1 as fast as the other rank")
    assert len([line for line in lines if "holds the other rank up" in line]) == 1


def test_the_terminal_names_the_slow_rank_behind_better_advice(tmp_path: Path) -> None:
    plant = PLANTED["too_few_workers"]
    plan = dataclasses.replace(plant.plan, ranks=2)
    run = build_case_run(tmp_path / "run", dataclasses.replace(plant, plan=plan))
    for rank in (0, 1):
        rows = build_steps(plan)
        lengthen(rows, **{WORKS[rank]: 15})
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    lines = write_brief(open_run(run.path))
    assert "rank 1 as fast" not in lines[1]
    assert lines[0].startswith("Rank 1 holds the other rank up 15.0 ms a step")


def test_a_slow_rank_that_is_mended_leaves_the_others_their_work(tmp_path: Path) -> None:
    run = build_ranks(tmp_path / "run", 600.0, 0.0)
    judged = judge_ranks(summarize_ranks(run))
    assert isinstance(judged, Slow)
    for rank in (0, 1):
        (found,) = (entry for entry in diagnose(run, rank).suggestions if entry.rule == "fixed_straggler")
        assert (found.predicted_low_ns or 0.0) >= 0.99 * judged.comparison.latest.others_ns


@pytest.mark.parametrize("everywhere", [False, True])
def test_what_the_slow_rank_alone_does_is_named_and_what_all_do_is_not(tmp_path: Path, everywhere: bool) -> None:
    run = build_ranks(tmp_path / "run", 30.0, 1.0)
    rows = [in_phase("backward", 60, own("mine_pairs", 7)), in_phase("forward", 40, own("embed", 3))]
    for rank in (0, 1) if everywhere else (1,):
        write_rows(run.rank(rank).folder, "stacks", [{**row, "start_ns": 10**12} for row in rows])
    title = "Rank 1 is slower than the other rank"
    found = next(entry for entry in diagnose(open_run(run.path), 0).suggestions if entry.rule == "fixed_straggler")
    assert found.title == (title if everywhere else f"{title}: mine_pairs()")
    assert ("mine_pairs() at train.py:7" in found.advice) is not everywhere


RULE = next(rule for rule in RULES if rule.id == "rotating_straggler")


def turning(*, others: float = 0.0, correlation: float | None = None) -> Case:
    case = judged(Turns(compared(uneven_correlation=correlation), 0.3 * base().steps.mean_ns, (), 1.0))
    return make.with_load(case, others=others * case.host.cores)


def hear(case: Case) -> Finding:
    found = RULE.judge(case)
    assert isinstance(found, Finding)
    return found


def test_turns_on_a_host_that_others_use_are_no_finding() -> None:
    busy = NOISY_FRAC + 0.1
    assert RULE.judge(turning(others=busy)) is None
    assert "share with others are another one" in hear(turning(others=busy, correlation=0.9)).text.advice


def test_the_sampler_that_is_advised_gives_all_ranks_like_lengths_in_a_step() -> None:
    lengths = torch.randint(1, 500, (103,), generator=torch.Generator().manual_seed(3)).tolist()
    code = hear(turning()).text.change
    room: dict[str, object] = {
        "torch": torch,
        "DataLoader": torch.utils.data.DataLoader,
        "dataset": list(range(103)),
        "lengths": lengths,
        "batch_size": 5,
        "world_size": 4,
    }
    ranks = []
    for rank in range(4):
        own = {**room, "rank": rank}
        exec(code, own)
        loader = own["loader"]
        assert isinstance(loader, torch.utils.data.DataLoader)
        first, second = ([batch.tolist() for batch in loader] for _ in range(2))
        assert first != second
        ranks.append(first)
    seen = [sample for rank in ranks for batch in rank for sample in batch]
    assert len(seen) == len(set(seen)) == 100
    for step in zip(*ranks, strict=True):
        sizes = [lengths[sample] for batch in step for sample in batch]
        assert len(sizes) == 20
        assert max(sizes) - min(sizes) < 200


BEHIND, SPENT = 12 * MS, 20 * MS
SLOW = Slow(compared(BEHIND))


def seen_from(rank: int, verdict: RankVerdict, peer_ms: float) -> Case:
    """Return one of two ranks whose tail takes 20 ms, and that of the other so much."""
    case = make.with_share(base(), "tail", SPENT / base().steps.mean_ns)
    peer = Peer(1 - rank, dict.fromkeys(case.steps.phases_ns, 0.0) | {"tail": peer_ms * MS})
    ranks = replace(case.ranks, world_size=2, peers=(peer,), verdict=verdict)
    return make.with_manifest(replace(case, ranks=ranks), rank=rank)


def promise(case: Case, what_if: WhatIf) -> float:
    """Return the step that is promised, as what is gained."""
    rule = Rule("x", knob="x", effort="code", judge=lambda case: None)
    finding = Finding(Text(*"tmtacf"), (), what_if=what_if, doubt_frac=0.0)
    claim = make_claim(case, rule, finding, Fixed(case.loading.loop.model, case.steps.mean_ns, {}))
    return case.steps.mean_ns - claim.step_ns


def halve_tail(case: Case) -> float:
    return promise(case, shorten_phases(case, ("tail",), 0.9))


def test_what_only_a_waiting_rank_does_gains_the_job_nothing() -> None:
    alone = halve_tail(seen_from(0, Alike(compared()), 0.0))
    assert alone == pytest.approx(0.9 * SPENT, rel=0.02)
    assert halve_tail(seen_from(0, SLOW, 0.0)) == 0.0
    assert halve_tail(seen_from(0, SLOW, 10.0)) == pytest.approx(alone / 2)


def test_what_all_ranks_do_gains_the_job_all_of_it() -> None:
    alone = halve_tail(seen_from(0, Alike(compared()), 20.0))
    assert halve_tail(seen_from(0, SLOW, 20.0)) == pytest.approx(alone)
    assert halve_tail(seen_from(1, SLOW, 20.0)) == pytest.approx(alone)


def test_a_slow_rank_alone_gains_no_more_than_what_it_is_late_by() -> None:
    assert halve_tail(seen_from(1, SLOW, 0.0)) == pytest.approx(BEHIND)
    assert halve_tail(seen_from(1, SLOW, 4.0)) == pytest.approx(BEHIND)


def test_where_waiting_was_not_seen_nothing_bounds_a_promise() -> None:
    hidden = Slow(compared(BEHIND, is_hidden=True))
    assert halve_tail(seen_from(0, hidden, 0.0)) == pytest.approx(0.9 * SPENT, rel=0.02)


def test_a_loader_is_bound_as_any_other_work() -> None:
    case = make.with_wait(seen_from(1, SLOW, 0.0), 0.5)
    case = make.with_jobs(make.with_model(case, workers=1), 64.0 * MS, 1.0)
    gain = promise(case, feed(case, lambda model: replace(model, workers=4)))
    assert gain <= BEHIND


@pytest.mark.parametrize(
    ("names", "change"),
    [
        (("allreduce",), "DistributedDataParallel("),
        (("all_gather_single", "reduce_scatter_single"), "fully_shard("),
        (("_allgather_base", "_reduce_scatter_base"), "fully_shard("),
    ],
)
def test_sharded_models_are_not_told_of_the_buckets_of_copies(
    tmp_path: Path, names: tuple[str, ...], change: str
) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["exposed_all_reduce"])
    for rank in (0, 1):
        rows = build_collectives(build_steps(PLANTED["exposed_all_reduce"].plan), late=False)
        rows = [{**row, "name": name, "index": 0} for row in rows for name in names]
        write_rows(run.rank(rank).folder, "collectives", rows)
    said = {entry.rule: entry for entry in diagnose(open_run(run.path), 0).suggestions}
    assert change in said["exposed_all_reduce"].change


def test_waiting_for_ranks_that_take_turns_is_no_communication_to_hide(tmp_path: Path) -> None:
    plant = PLANTED["rotating_straggler"]
    run = build_case_run(tmp_path / "run", plant)
    for rank in (0, 1):
        rows = build_steps(plant.plan)
        for row in rows:
            row["backward_ns" if row["step"] % 2 == rank else "communication_ns"] += 60 * MS
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    again = open_run(run.path)
    said = {entry.rule for entry in diagnose(again, 0).suggestions}
    assert "rotating_straggler" in said
    assert "exposed_all_reduce" not in said
    case = measure(again)
    assert case.steps.phases_ns["communication"] > 25 * MS
    assert case.transfer_ns < MS
