"""The mean step by lines of the user's code: the parts sum to the step, and each has the line that its owner would look for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema import layout
from collector.format.schema.manifest import Window
from profiler_server.analysis.recorded_facts import read_repeated_nodes
from profiler_server.analysis.stacks.frames import parse_frame
from profiler_server.analysis.stacks.line_work import Third, part_steps, read_line_work, read_repeated_time
from profiler_server.analysis.stacks.lines import find_lines
from profiler_server.analysis.stacks.stacks import mark_dense, read_lines, read_stacks
from profiler_server.facts.case import THREADS, WORKERS, Hotspot, Lines
from profiler_server.facts.machine import RepeatedNodes
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.runs import build_run
from tests.support.stacks import LIBRARY, in_phase, in_stage, in_thread, library, own, write_stacks
from tests.support.tables import write_rows
from tests.unit.diagnosis.edges.base import base

BACKWARD = library("Tensor.backward", "torch/_tensor.py")
GRADIENT = library("grad", "torch/autograd/__init__.py")
UPDATE = library("Adam.step", "torch/optim/adam.py")
MODULE = library("Module._call_impl", "torch/nn/modules/module.py")
NET = own("Net.forward", 12, "net.py")
PHASES = [
    in_phase("forward", 40, MODULE, NET),
    in_phase("backward", 40, BACKWARD),
    in_phase("optimizer", 20, UPDATE),
]
SHARES = {"forward": 0.4, "backward": 0.4, "optimizer": 0.2}


def _read(path: Path, *rows: dict[str, Any], shares: dict[str, float] | None = None, texts: Any = None) -> Lines:
    rank = Run(write_stacks(build_run(path / "run"), rows)).rank(0)
    return read_lines(rank, must(read_stacks(rank)), SHARES if shares is None else shares, texts or {})


def _spell(spot: Hotspot) -> tuple[str, str, float]:
    return spot.function, spot.place, round(spot.share_frac, 3)


def test_functions_and_lines_of_the_loop_share_the_step(tmp_path: Path) -> None:
    found = _read(tmp_path, *PHASES)
    assert [_spell(spot) for spot in found.hotspots] == [
        ("main", "train.py:60", 0.6),
        ("Net.forward", "net.py:12", 0.4),
    ]
    assert [(spot.doing, spot.is_of_loop) for spot in found.hotspots] == [("backward", True), ("", False)]
    assert found.hotspots[0].phases == pytest.approx({"backward": 0.4, "optimizer": 0.2})
    assert found.hotspots[0].calls == pytest.approx({"torch.Tensor.backward": 0.4, "torch.Adam.step": 0.2})


def test_the_lines_of_a_function_are_its_largest_with_their_texts(tmp_path: Path) -> None:
    rows = [in_phase("forward", 20, MODULE, NET, own("normalize", line, "net.py")) for line in (30, 32, 32)]
    found = _read(tmp_path, *PHASES, *rows, texts={"/home/me/net.py": {32: "return d * a"}})
    spot = next(spot for spot in found.hotspots if spot.function == "normalize")
    assert [(line.number, round(line.share_frac, 2), line.text) for line in spot.lines] == [
        (32, 0.16, "return d * a"),
        (30, 0.08, ""),
    ]
    assert spot.caller == "net.py:12"
    assert spot.share_frac == pytest.approx(0.24)
    assert spot.low_frac < spot.share_frac < spot.high_frac


def test_a_small_function_belongs_to_the_line_that_calls_it(tmp_path: Path) -> None:
    small = in_phase("forward", 4, MODULE, NET, own("scale", 50, "net.py"), own("root", 70, "net.py"))
    found = _read(tmp_path, *PHASES, small)
    assert {spot.function for spot in found.hotspots} == {"main", "Net.forward"}
    assert found.hotspots[1].share_frac == pytest.approx(0.4)


def test_a_comprehension_is_a_part_of_the_line_that_holds_it(tmp_path: Path) -> None:
    rows = [
        in_phase("tail", 60, own("distance", 9), own("distance.<locals>.<genexpr>", 10), library("f", "numpy/x.py"))
    ]
    found = _read(tmp_path, *PHASES, *rows, shares={**SHARES, "tail": 0.5})
    spot = next(spot for spot in found.hotspots if spot.function == "distance")
    assert (spot.function, spot.lines[0].number, dict(spot.calls)) == ("distance", 10, {"numpy.f": 0.5})


def test_code_that_makes_objects_is_counted(tmp_path: Path) -> None:
    made = in_phase("tail", 30, own("judge", 9), library("Metric.__init__", "torchmetrics/metric.py"))
    used = in_phase("tail", 10, own("judge", 9), library("Metric.update", "torchmetrics/metric.py"))
    found = _read(tmp_path, *PHASES, made, used, shares={**SHARES, "tail": 0.4})
    assert next(spot.made_frac for spot in found.hotspots if spot.function == "judge") == pytest.approx(0.3)


@pytest.mark.parametrize(("name", "is_made"), [("Pairs.__init__", True), ("Pairs.__iter__", False)])
def test_a_generator_of_the_users_own_makes_items_and_is_not_made_anew(
    name: str, is_made: bool, tmp_path: Path
) -> None:
    found = _read(tmp_path, *PHASES, in_phase("tail", 30, own(name, 9)), shares={**SHARES, "tail": 0.4})
    spot = next(spot for spot in found.hotspots if spot.function == name)
    assert (spot.made_frac > 0) is is_made


def test_the_wait_for_workers_is_divided_as_their_work_is(tmp_path: Path) -> None:
    asking = library("_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py")
    poll = "Connection.poll (/usr/lib/python3.11/multiprocessing/connection.py:257)"
    item = own("Photos.__getitem__", 31, "data.py")
    rows = [
        in_phase("data_wait", 30, asking, poll),
        in_phase("data_wait", 10, library("RandomSampler.__iter__", "torch/utils/data/sampler.py")),
        in_stage("read", 60, item, own("decode", 44, "data.py")),
        in_stage("read", 20, item),
        in_stage("send", 500, item),
    ]
    found = _read(tmp_path, *PHASES, *rows, shares={**SHARES, "data_wait": 0.4})
    shares = {spot.function: (round(spot.share_frac, 3), list(spot.phases)) for spot in found.hotspots}
    assert shares["decode"] == (0.225, [WORKERS])
    assert shares["Photos.__getitem__"] == (0.075, [WORKERS])
    loop = next(spot for spot in found.hotspots if spot.function == "main")
    assert loop.phases["data_wait"] == pytest.approx(0.1)
    assert loop.inside["torch.RandomSampler.__iter__"] == pytest.approx(0.1)


def test_the_wait_for_threads_is_divided_as_their_work_is_as_far_as_they_were_seen(tmp_path: Path) -> None:
    get = own("feed", 20), "Condition.wait (/usr/lib/python3.11/threading.py:331)"
    rows = [
        in_phase("data_wait", 30, *get),
        in_phase("data_wait", 10, own("shuffle", 25)),
        in_thread("data_wait", 15, own("decode", 44, "data.py")),
        in_thread("data_wait", 5, own("crop", 50, "data.py")),
    ]
    found = _read(tmp_path, *PHASES, *rows, shares={**SHARES, "data_wait": 0.4})
    shares = {spot.function: (round(spot.share_frac, 3), list(spot.phases)) for spot in found.hotspots}
    assert (shares["decode"], shares["crop"]) == ((0.15, [THREADS]), (0.05, [THREADS]))
    assert (shares["feed"], shares["shuffle"]) == ((0.1, ["data_wait"]), (0.1, ["data_wait"]))


def test_what_no_line_of_the_user_calls_is_foreign_and_a_phase_without_samples_unseen(tmp_path: Path) -> None:
    frames = f"run ({LIBRARY}/lightning/loop.py:7)"
    rows = [{**PHASES[0], "phase": "tail", "stack": frames}, *PHASES]
    found = _read(tmp_path, *rows, shares={**SHARES, "tail": 0.3, "gap": 0.1})
    assert found.foreign_frac == pytest.approx(0.3)
    assert found.unseen_frac == pytest.approx(0.1)


FRAMES = st.sampled_from(
    [
        *(own(name, line) for name in ("a", "b", "Data.__getitem__", "a.<locals>.<genexpr>") for line in (1, 2)),
        *(library(name, "torch/x.py") for name in ("f", "Module.__init__")),
    ]
)


@given(
    st.dictionaries(
        st.sampled_from(["forward", "backward", "tail"]),
        st.dictionaries(st.lists(FRAMES, max_size=6).map(tuple), st.integers(1, 50), min_size=1, max_size=12),
        min_size=1,
    )
)
def test_the_parts_sum_to_the_step(phases: dict[str, dict[tuple[str, ...], int]]) -> None:
    weights = {
        phase: {tuple(map(parse_frame, stack)): count for stack, count in stacks.items()}
        for phase, stacks in phases.items()
    }
    shares = dict(zip(["forward", "backward", "tail", "gap"], [0.4, 0.3, 0.2, 0.1], strict=True))
    found = find_lines(weights, shares, frozenset({("a", "/home/me/train.py")}), {}, lambda _: {}, lambda _: {})
    whole = sum(spot.share_frac for spot in found.hotspots) + found.rest_frac + found.foreign_frac + found.unseen_frac
    assert whole == pytest.approx(1.0)
    assert all(0 <= spot.low_frac <= spot.share_frac <= spot.high_frac + 1e-9 for spot in found.hotspots)
    assert all(sum(spot.phases.values()) == pytest.approx(spot.share_frac) for spot in found.hotspots)


US = 1_000
BEGIN, STEP = 10**12 + 10**9, 20_000 * US
"""Two detailed steps: 4 ms of `loop` with 40 short operators, 4 ms of `dense` in one, then 8 ms of backward."""


def _build_window(path: Path, of_dense: int = 60, makes_graph: bool = False) -> RankRun:
    forwards = (("loop", 120 - of_dense), ("dense", of_dense))
    usual = [in_phase("forward", samples, MODULE, NET, own(name, 1, "net.py")) for name, samples in forwards]
    run = write_stacks(build_run(path / "run"), [*usual, *PHASES[1:], *_sample_window(makes_graph)])
    rows: list[dict[str, Any]] = []

    def add(name: str, start_us: int, length_us: int, sequence: int, depth: int = 0, parent: int | None = None) -> None:
        rows.append(
            {
                "id": len(rows),
                "track": 0,
                "depth": depth,
                "start_ns": BEGIN + start_us * US,
                "duration_ns": length_us * US,
                "name": name,
                "category": "operator",
                "sequence": sequence,
                "parent": parent,
                "step": 10 + start_us // (STEP // US),
            }
        )

    for step in range(2):
        at, node = step * 20_000, 100 * step
        for call in range(40):
            add("aten::tanh", at + 100 * call, 50, node + call)
        add("aten::linear", at + 4_000, 4_000, node + 40, depth=1, parent=10_000)  # a range of the user's, no operator
        linear = len(rows) - 1
        add("aten::t", at + 4_000, 100, node + 40, depth=2, parent=linear)
        add("aten::addmm", at + 4_100, 3_800, node + 41, depth=2, parent=linear)
        for number, length in ((41, 5_000), (40, 1_000), *((call, 50) for call in range(39, -1, -1))):
            begin = rows[-1]["start_ns"] // US - BEGIN // US + rows[-1]["duration_ns"] // US
            name = "autograd::engine::evaluate_function: TanhBackward0"
            add(name, max(begin, at + 8_000), length, node + number)
        if makes_graph:
            add("autograd::engine::evaluate_function: MulBackward0", at + 16_000, 1_500, node + 60)
            add("aten::mul", at + 9_000, 1_000, node + 60, depth=1, parent=linear + 3)
            add("AddmmBackward0", at + 8_900, 2_000, node + 60, depth=1, parent=linear + 3)
    rows.append({**rows[0], "id": len(rows), "track": 7, "duration_ns": 10 * US, "name": "aten::other"})
    write_rows(run, "slices", sorted(rows, key=lambda row: int(row["start_ns"])))
    window = Window(10, 11, BEGIN, BEGIN + 2 * STEP, 0, "option", "")
    edit_rank(run, 0, windows=(window,))
    return Run(run).rank(0)


def _sample_window(makes_graph: bool) -> list[dict[str, Any]]:
    """A sample each millisecond: every second one of the loop between two operators. A function that makes the graph of
    its own gradient runs the first backward node."""
    rows = []
    for step in range(2):
        for ms in range(16):
            if ms < 8:
                name, line = ("loop", 21) if ms < 4 else ("dense", 31)
                row = in_phase("forward", 1, MODULE, NET, own(name, line, "net.py"))
            elif makes_graph and ms < 13:
                row = in_phase("backward", 1, NET, own("dense", 33, "net.py"), GRADIENT)
            else:
                row = in_phase("backward", 1, BACKWARD)
            shift = 75 if ms % 2 else 25
            rows.append({**row, "start_ns": BEGIN + step * STEP + ms * 1_000 * US + shift * US})
    return rows


def test_lines_have_the_operators_of_the_window_and_their_backward(tmp_path: Path) -> None:
    rank = _build_window(tmp_path)
    stacks = must(read_stacks(rank))
    assert list(stacks.phases["forward"].values()) == [60, 60], "samples of the window are in no average"
    found = {spot.function: spot for spot in read_lines(rank, stacks, SHARES, {}).hotspots}
    loop, dense = must(found["loop"].work), must(found["dense"].work)
    (tanh,) = loop.operators
    assert (tanh.name, tanh.mean_ns, tanh.backward_ns, loop.operator_frac) == ("aten::tanh", 50 * US, 50 * US, 0.5)
    assert 36 <= tanh.calls == loop.calls <= 40, "between the samples of two lines the nearer one has the operator"
    linear = dense.operators[0]
    assert (linear.name, linear.calls) == ("aten::linear", 1.0)
    assert linear.backward_ns == 6_000 * US, "nodes of the operators inside of it count, too"
    assert dense.operator_frac == 1.0
    assert loop.backward_frac == pytest.approx(0.24, abs=0.02)
    assert dense.backward_frac == pytest.approx(0.76, abs=0.02)
    assert found["dense"].backward_frac == pytest.approx(0.4 * dense.backward_frac)
    assert found["dense"].whole_frac == found["dense"].share_frac + found["dense"].backward_frac
    assert must(found["main"].work).backward_frac == 0.0


def test_a_short_function_with_a_long_backward_is_named(tmp_path: Path) -> None:
    rank = _build_window(tmp_path, of_dense=1)
    found = {spot.function: spot for spot in read_lines(rank, must(read_stacks(rank)), SHARES, {}).hotspots}
    assert found["dense"].share_frac == pytest.approx(SHARES["forward"] / 120)
    assert found["dense"].backward_frac == pytest.approx(0.76 * 0.4, abs=0.01)


def test_a_line_that_takes_a_gradient_with_its_graph_has_the_backward_of_that_graph(tmp_path: Path) -> None:
    rank = _build_window(tmp_path, makes_graph=True)
    found = {spot.function: spot for spot in read_lines(rank, must(read_stacks(rank)), SHARES, {}).hotspots}
    assert must(found["loop"].work).backward_frac == pytest.approx(2.0 / 9.5, abs=0.025)
    alone = 1.0 + 1.5  # node 41 runs in the line that made it: its 5 ms are in the share of the line already
    assert must(found["dense"].work).backward_frac == pytest.approx(alone / 9.5, abs=0.025)


def test_gradients_that_nobody_uses_count_for_a_line_that_runs_them_itself_too(tmp_path: Path) -> None:
    rank = _build_window(tmp_path, makes_graph=True)
    unused = {"parameters": 1, "updated": 1, "nodes": [[41, 41, 0, 2], [141, 141, 0, 2]]}
    edit_rank(rank.folder.parent.parent, 0, facts={"unused_gradients": unused})
    rank = Run(rank.folder.parent.parent).rank(0)
    found = {spot.function: spot for spot in read_lines(rank, must(read_stacks(rank)), SHARES, {}).hotspots}
    assert must(found["dense"].work).unused_frac == pytest.approx(5.0 / 9.5)


def test_what_is_computed_again_has_its_time_with_its_backward_and_its_line(tmp_path: Path) -> None:
    rank = _build_window(tmp_path)
    edit_rank(rank.folder.parent.parent, 0, facts={"repeated_nodes": {"step": 10, "nodes": [[41, 41, 0, 2]]}})
    rank = Run(rank.folder.parent.parent).rank(0)
    repeated = must(read_repeated_nodes(rank.manifest.facts))
    assert read_repeated_time(rank, repeated) == (3_800 + 5_000) * US
    assert read_repeated_time(rank, replace(repeated, step=99)) is None
    found = {spot.function: spot for spot in read_lines(rank, must(read_stacks(rank)), SHARES, {}).hotspots}
    assert {name: must(spot.work).again_frac for name, spot in found.items() if spot.work} == {
        "dense": 1.0,
        "loop": 0.0,
        "main": 0.0,
    }


def test_stacks_without_a_line_of_the_users_have_their_part_of_what_is_computed_again(tmp_path: Path) -> None:
    rank = _build_window(tmp_path)
    edit_rank(rank.folder.parent.parent, 0, facts={"repeated_nodes": {"step": 10, "nodes": [[30, 41, 0, 2]]}})
    rank = Run(rank.folder.parent.parent).rank(0)
    rows = rank.table("stacks")
    dense = rows.filter(pa.array(mark_dense(rank, rows)))
    found = read_line_work(rank, dense, lambda stack: "loop" if "loop" in str(stack) else None)
    assert 0.0 < found["loop"].again_frac < 0.1


def test_without_a_window_the_time_of_what_is_computed_again_is_unknown(tmp_path: Path) -> None:
    rank = Run(build_run(tmp_path / "run")).rank(0)
    layout.table_file(rank.folder, "slices").unlink()
    rank = Run(rank.folder.parent.parent).rank(0)
    assert read_repeated_time(rank, RepeatedNodes(10, ((1, 1, 0, 2),))) is None


@pytest.mark.parametrize("kept", [0, 19])
def test_with_few_samples_in_windows_no_operators_are_known(tmp_path: Path, kept: int) -> None:
    rank = _build_window(tmp_path)
    table = rank.table("stacks")
    few = table.slice(0, 4 + kept)
    parts.write_table(few, layout.table_file(rank.folder, "stacks"))
    found = read_lines(rank, must(read_stacks(rank)), SHARES, {})
    assert found.hotspots
    assert all(spot.work is None for spot in found.hotspots)


COURSE_BEGIN, THIRD = 10**12, 10**10
MINE, OTHER = own("mine", 31), own("other", 41)


def thirds(*forward_ns: float) -> tuple[Third, ...]:
    phases = dict.fromkeys(PHASE_NAMES, 0.0)
    return tuple(
        Third(COURSE_BEGIN + at * THIRD, 10 + 100 * at, {**phases, "forward": time_ns, "backward": 5e6})
        for at, time_ns in enumerate(forward_ns)
    )


def read(path: Path, rows: list[dict[str, Any]], parts: tuple[Third, ...]) -> dict[str, Hotspot]:
    backward = in_phase("backward", 100, library("Tensor.backward", "torch/_tensor.py"))
    rows = [*rows, *({**backward, "start_ns": part.start_ns + 5} for part in parts)]
    rank = Run(write_stacks(build_run(path / "run"), rows)).rank(0)
    found = read_lines(rank, must(read_stacks(rank)), {"forward": 0.5, "backward": 0.5}, {}, parts)
    return {spot.function: spot for spot in found.hotspots}


def sample(third: int, mine: int, other: int, **values: Any) -> list[dict[str, Any]]:
    begin = {"start_ns": COURSE_BEGIN + third * THIRD + 5, "duration_ns": THIRD - 10}
    return [
        {**in_phase("forward", count, MODULE, frame), **begin, **values}
        for count, frame in ((mine, MINE), (other, OTHER))
        if count
    ]


def test_the_time_of_a_line_is_its_share_of_the_phases_of_each_third(tmp_path: Path) -> None:
    rows = [*sample(0, 20, 80), *sample(1, 40, 60), *sample(2, 60, 40)]
    found = read(tmp_path, rows, thirds(10e6, 12e6, 15e6))
    course = must(found["mine"].course)
    assert course.times_ns == pytest.approx((2e6, 4.8e6, 9e6))
    assert course.growth_ns == pytest.approx(7e6)
    assert course.steps == (10, 210)
    assert course.rest_ns == pytest.approx((13e6, 11e6))
    assert course.error_ns == pytest.approx(8.5e5, rel=0.1), "0.4 of 10 ms and 0.49 of 15 ms, by ten samples' root"
    assert must(found["other"].course).times_ns == pytest.approx((8e6, 7.2e6, 6e6))


def test_threads_are_those_of_the_samples_in_which_one_ran(tmp_path: Path) -> None:
    looked = {"asleep": 15, "running": 40}
    found = read(
        tmp_path, [*sample(0, 20, 0, **looked), *sample(1, 20, 0, **looked), *sample(2, 20, 20)], thirds(1, 1, 1)
    )
    course = must(found["mine"].course)
    assert (course.asleep_frac, course.threads) == (0.75, 2.0)
    other = must(found["other"].course)
    assert (other.asleep_frac, other.threads) == (None, None), "an older recording did not look"


def test_a_run_is_parted_by_its_averaged_steps() -> None:
    first, middle, last = part_steps(base().steps)
    assert first.step < middle.step < last.step
    assert first.start_ns < middle.start_ns < last.start_ns
    assert sum(middle.phases_ns.values()) == pytest.approx(base().steps.mean_ns, rel=0.01)
