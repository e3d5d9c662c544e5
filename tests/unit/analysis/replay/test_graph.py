"""The graph of a window: what waits for what, and what a replay makes of changes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.format.run import open_run
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.critical import CriticalPath, find_critical_path
from profiler_server.analysis.replay.graph import Changes, Graph, measure_replay
from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.analysis.replay.window import read_window
from profiler_server.diagnosis.readings import say_host_waits
from tests.support.must import must
from tests.support.row_edits import write_rows
from tests.support.traces import Event
from tests.support.window_cases import wait_each_layer
from tests.support.windows import Machine, Step, build_window, compute


def build(path: Path, body: Step, **options: bool) -> Graph:
    window = must(read_window(build_window(path, body, steps=6, **options).rank()))
    return must(build_graph(window))


def halve(graph: Graph, what: str) -> float:
    """Return the time that is left where the `host` or the `device` takes half."""
    changes = Changes.none(graph)
    getattr(changes, what)[:] = 0.5
    return measure_replay(graph, changes) / measure_replay(graph)


def slow_host(machine: Machine) -> None:
    for _ in range(20):
        machine.work(100.0)
        machine.run("aten::mm", 20.0)


def in_another_thread(events: list[Event], begin: int) -> None:
    for event in events[begin:]:
        if event["pid"] == 100:
            event["tid"] = 200


def take_turns(machine: Machine) -> None:
    compute(machine, 5, 10.0)
    begin = len(machine.events)
    machine.work(20.0)
    for _ in range(10):
        machine.run("autograd::engine::evaluate_function: MmBackward0", 10.0, 100.0)
    in_another_thread(machine.events, begin)
    machine.work(20.0)


@pytest.mark.parametrize("body", [compute, slow_host, take_turns])
def test_an_unchanged_replay_gives_the_measured_time(body: Step, tmp_path: Path) -> None:
    graph = build(tmp_path, body)
    assert measure_replay(graph) == pytest.approx(graph.measured_ns, rel=0.005)


@pytest.mark.parametrize(("body", "matters", "other"), [(compute, "device", "host"), (slow_host, "host", "device")])
def test_only_what_the_step_waits_for_matters(body: Step, matters: str, other: str, tmp_path: Path) -> None:
    graph = build(tmp_path, body)
    assert halve(graph, matters) == pytest.approx(0.5, abs=0.05)
    assert halve(graph, other) > 0.97


def test_a_shorter_backward_thread_lets_the_forward_thread_go_on_earlier(tmp_path: Path) -> None:
    graph = build(tmp_path, take_turns)
    assert len(graph.window.threads) == 2
    changes = Changes.none(graph)
    changes.host[graph.host.thread == 1] = 0.1
    saved = 1.0 - measure_replay(graph, changes) / measure_replay(graph)
    assert saved == pytest.approx(0.9 * 10 * 102 / (10 * 102 + 5 * 12 + 40 + 15), abs=0.1)


def test_a_launch_that_waits_for_the_queue_is_over_earlier_on_a_faster_device(tmp_path: Path) -> None:
    graph = build(tmp_path, lambda machine: compute(machine, 60), reads_loss=False)
    assert halve(graph, "device") < 0.6


def test_a_node_comes_after_all_that_it_waits_for(tmp_path: Path) -> None:
    graph = build(tmp_path, take_turns)
    nodes = np.arange(len(graph))
    assert (graph.chain < nodes).all()
    assert (graph.launch < nodes).all()
    assert all(source < node for node, found in [*graph.after.items(), *graph.awaits.items()] for source, _ in found)


def test_slices_that_name_each_other_and_broken_arguments_end_the_search(tmp_path: Path) -> None:
    run = build_window(tmp_path, wait_each_layer, steps=3)
    folder = run.rank().folder
    rows = run.rank().table("slices").to_pylist()
    for row in rows:
        row |= {"parent": row["id"], "args": "{" * 2_000}
    write_rows(folder, "slices", rows)
    assert replay_rank(open_run(run.path).rank()) is not None
    assert find_critical_path(open_run(run.path).rank()) is not None


def test_a_wait_that_outlasts_the_steps_is_passed_before_their_end(tmp_path: Path) -> None:
    run = build_window(tmp_path, compute, steps=3)
    rows = run.rank().table("slices").to_pylist()
    last = max((row for row in rows if row["name"] == "cudaStreamSynchronize"), key=lambda row: row["start_ns"])
    last["duration_ns"] += 50_000_000
    write_rows(run.rank().folder, "slices", rows)
    window = must(read_window(open_run(run.path).rank()))
    graph = must(build_graph(window))
    assert (graph.chain < np.arange(len(graph))).all()


def find_path(path: Path, body: Step) -> CriticalPath:
    return must(find_critical_path(build_window(path, body, steps=6).rank()))


def read_shares(path: CriticalPath) -> dict[str, float]:
    sums = path.sum_kinds()
    return {kind: length / sum(sums.values()) for kind, length in sums.items()}


def long_operators(machine: Machine) -> None:
    for _ in range(20):
        machine.run("aten::mm", 20.0, 200.0)


def copy_much(machine: Machine) -> None:
    machine.copy("aten::to", 2_000.0, 1 << 26)
    compute(machine, 2)


def read_data(machine: Machine) -> None:
    machine.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", lambda: machine.work(3_000.0))
    compute(machine, 2)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (compute, "compute"),
        (slow_host, "python"),
        (long_operators, "operator"),
        (copy_much, "copy"),
        (read_data, "loading"),
    ],
)
def test_the_path_leads_through_what_the_step_waits_for(body: Step, kind: str, tmp_path: Path) -> None:
    shares = read_shares(find_path(tmp_path, body))
    assert max(shares, key=lambda name: shares[name]) == kind
    assert shares[kind] > 0.6


@pytest.mark.parametrize("body", [compute, slow_host, wait_each_layer, read_data])
def test_the_pieces_lie_end_to_end_and_sum_to_the_steps(body: Step, tmp_path: Path) -> None:
    path = find_path(tmp_path, body)
    assert (path.start_ns[1:] == path.end_ns[:-1]).all()
    assert (path.end_ns > path.start_ns).all()
    assert sum(path.sum_kinds().values()) == int((path.step_ends_ns - path.step_starts_ns).sum())


def test_a_piece_names_the_slice_that_it_stands_on(tmp_path: Path) -> None:
    run = build_window(tmp_path, compute, steps=6)
    path = must(find_critical_path(run.rank()))
    slices = run.rank().table("slices").to_pandas().set_index("id")
    named = path.slice_id >= 0
    found = slices.loc[path.slice_id[named]]
    assert (found["track"].to_numpy() == path.track[named]).all()
    assert (found["depth"].to_numpy() == path.depth[named]).all()
    assert path.examples["compute"] == ("gemm_sm90",)


def test_the_host_work_that_the_device_waits_for_is_named_with_its_time(tmp_path: Path) -> None:
    said = say_host_waits(find_path(tmp_path, read_data).host_waits)
    assert re.fullmatch(r"The device waits .* of a step \(.* %\) for work of the host: .*DataLoader.* m?s.*\.", said)
    assert say_host_waits(find_path(tmp_path / "computing", compute).host_waits) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("<built-in function zoom_shift>", "zoom_shift()"),
        ("<built-in method synchronize of torch.Event object at 0x7f3>", "synchronize()"),
        ("transformers/image_transforms.py(390): normalize", "normalize() at image_transforms.py:390"),
        ("aten::copy_", "aten::copy_"),
    ],
)
def test_host_work_is_spelled_as_a_function(name: str, said: str, tmp_path: Path) -> None:
    path = find_path(tmp_path, read_data)
    sentence = say_host_waits(replace(path, waits_ns={name: sum(path.sum_kinds().values())}).host_waits)
    assert f"for work of the host: {said} " in sentence
