"""The critical path: it leads through what the step waited for, and its times sum to the steps."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_server.analysis.replay.critical import CriticalPath, find_critical_path
from profiler_server.diagnosis.readings import say_host_waits
from tests.support.must import must
from tests.support.window_cases import wait_each_layer
from tests.support.windows import Machine, Step, build_window, compute


def find_path(path: Path, body: Step) -> CriticalPath:
    return must(find_critical_path(build_window(path, body, steps=6).rank()))


def read_shares(path: CriticalPath) -> dict[str, float]:
    sums = path.sum_kinds()
    return {kind: length / sum(sums.values()) for kind, length in sums.items()}


def slow_host(machine: Machine) -> None:
    for _ in range(20):
        machine.work(100.0)
        machine.run("aten::mm", 20.0)


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
    assert sum(path.sum_kinds().values()) == path.steps_ns


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
    sentence = say_host_waits(replace(path, waits_ns={name: path.steps_ns}).host_waits)
    assert f"for work of the host: {said} " in sentence
