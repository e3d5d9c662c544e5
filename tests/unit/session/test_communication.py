"""What gradients cost between ranks: the part that the backward waits for, and the part that it hides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collector import open_run
from collector.format.phases import PHASE_NAMES
from tests.support.ranks import launch

SETUP = """
import sys, time, torch
import torch.distributed as dist
from torch import nn
from collector import Profiler
from tests.support import shapes
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
x = torch.randn(16, 256)
profiler = Profiler(sys.argv[1], window=None)
"""
FINISH = """
profiler.analyse()
dist.destroy_process_group()
"""
SLOW_S = 0.2
"""Long against what a loaded machine adds to a step."""
DDP = f"""
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(model, bucket_cap_mb=0.3)
optimizer = shapes.sgd(model)
for step in range(10):
    optimizer.zero_grad()
    with model.no_sync():
        model(x).sum().backward()
    loss = model(x).sum()
    if rank and step >= 5:
        time.sleep({SLOW_S})
    loss.backward()
    optimizer.step()
"""
NO_SYNC = """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(model)
optimizer = shapes.sgd(model)
with model.no_sync():
    for step in range(8):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
FSDP = f"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (2,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = shapes.sgd(model)
for step in range(9):
    optimizer.zero_grad()
    loss = model(x).sum()
    if rank and step >= 4:
        time.sleep({SLOW_S})
    loss.backward()
    optimizer.step()
"""
EXPLICIT = """
optimizer = shapes.sgd(model)
for step in range(6):
    optimizer.zero_grad()
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    model(x).sum().backward()
    time.sleep(0.02)
    work.wait()
    dist.all_gather([torch.empty(10, dtype=torch.float64) for _ in range(2)], torch.ones(10, dtype=torch.float64))
    dist.barrier()
    optimizer.step()
"""


def read_calls(path: Path, rank: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = open_run(path).table("collectives", rank).sort_by("start_ns").to_pylist()
    return rows


def read_steps(path: Path, rank: int) -> list[dict[str, Any]]:
    rows = [row for row in open_run(path).table("steps", rank).to_pylist() if row["kind"] == "train"]
    assert all(sum(row[f"{name}_ns"] for name in PHASE_NAMES) == row["duration_ns"] for row in rows)
    return rows


def median(rows: list[dict[str, Any]], column: str) -> int:
    return int(sorted(row[column] for row in rows)[len(rows) // 2])


@pytest.fixture(scope="module")
def ddp_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ddp")
    launch(SETUP + DDP + FINISH, path)
    return path


def assert_waits_for(waiting: list[dict[str, Any]], slow: list[dict[str, Any]]) -> None:
    """Most of what the slow rank sleeps is communication of the other one, and none of its own."""
    waits, own = median(waiting, "communication_ns"), median(slow, "communication_ns")
    assert waits > 0.5 * SLOW_S * 1e9
    assert waits - own > 0.5 * SLOW_S * 1e9


def test_a_rank_that_waits_for_a_slow_one_is_communicating_and_the_slow_one_is_not(ddp_run: Path) -> None:
    waiting, slow = (read_steps(ddp_run, rank)[6:] for rank in (0, 1))
    assert_waits_for(waiting, slow)
    assert median(waiting, "backward_ns") < median(waiting, "communication_ns")


def test_the_whole_reduction_is_longer_than_what_the_backward_waits_for(ddp_run: Path) -> None:
    known = [row for row in read_steps(ddp_run, 0)[5:] if row["communication_total_ns"] is not None]
    assert known
    assert all(row["communication_ns"] <= row["communication_total_ns"] < row["duration_ns"] for row in known)
    assert any(row["communication_total_ns"] > row["communication_ns"] for row in known)


def test_backwards_that_reduce_nothing_wait_for_nothing(tmp_path: Path) -> None:
    launch(SETUP + NO_SYNC + FINISH, tmp_path)
    rows = read_steps(tmp_path, 0)
    assert len(rows) == 8
    assert median(rows, "communication_ns") < 0.5 * median(rows, "backward_ns")
    assert all(row["communication_total_ns"] is None for row in rows)


def test_gathering_and_scattering_of_sharded_parameters_is_communication(tmp_path: Path) -> None:
    launch(SETUP + FSDP + FINISH, tmp_path)
    waiting, slow = (read_steps(tmp_path, rank) for rank in (0, 1))
    assert len(waiting) == 9
    assert min(row["communication_ns"] for row in waiting) > 0
    assert_waits_for(waiting[5:], slow[5:])
    gathered = [call for call in read_calls(tmp_path, 0) if call["name"] == "all_gather_single"]
    # Every layer is gathered for the forward and again for the backward; what is sent is half of a layer.
    assert Counter(call["step"] for call in gathered) == dict.fromkeys(range(1, 10), 8)
    assert {call["bytes"] for call in gathered} == {(256 * 256 + 256) * 4 // 2}


def test_calls_are_listed_with_what_was_sent_and_how_long_they_held_the_training(tmp_path: Path) -> None:
    launch(SETUP + EXPLICIT + FINISH, tmp_path)
    for rank in (0, 1):
        calls = read_calls(tmp_path, rank)
        assert {(call["name"], call["dtype"], call["bytes"], call["group_size"]) for call in calls} == {
            ("allreduce", "float32", 4000, 2),
            ("allgather", "float64", 80, 2),
            ("barrier", None, 0, 2),
        }
        reduced = [call for call in calls if call["name"] == "allreduce"]
        assert len(reduced) == 6
        # What is waited for late was under way all the time, and held nobody up meanwhile.
        assert all(call["duration_ns"] > 10_000_000 > 0 <= call["held_ns"] < call["duration_ns"] for call in reduced)
        assert [call["index"] for call in calls] == list(range(len(calls)))


def test_the_reduction_of_gradients_is_listed_with_its_bytes(ddp_run: Path) -> None:
    first, second = (read_calls(ddp_run, rank) for rank in (0, 1))
    size = 4 * (256 * 256 + 256) * 4
    assert {(call["name"], call["dtype"], call["bytes"]) for call in first} == {("allreduce (DDP)", "float32", size)}
    assert {call["step"] for call in first} & {call["step"] for call in second}
    steps = {row["step"]: row for row in read_steps(ddp_run, 0)}
    for call in first:
        step = steps[call["step"]]
        assert step["start_ns"] <= call["start_ns"]
        assert call["start_ns"] + call["duration_ns"] <= step["start_ns"] + step["duration_ns"]
