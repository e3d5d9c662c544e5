"""What gradients cost between ranks: the part that the backward waits for, and the part that it hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector import open_run
from collector.schema.phases import PHASE_NAMES
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
SLOW_S = 0.04
DDP = f"""
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(model, bucket_cap_mb=0.3)
optimizer = shapes.sgd(model)
for step in range(12):
    optimizer.zero_grad()
    with model.no_sync():
        model(x).sum().backward()
    loss = model(x).sum()
    if rank and step >= 6:
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
for step in range(10):
    optimizer.zero_grad()
    loss = model(x).sum()
    if rank and step >= 5:
        time.sleep({SLOW_S})
    loss.backward()
    optimizer.step()
"""


def read_steps(path: Path, rank: int) -> list[dict[str, Any]]:
    rows = [row for row in open_run(path).table("steps", rank).to_pylist() if row["kind"] == "train"]
    assert all(sum(row[f"{name}_ns"] for name in PHASE_NAMES) == row["duration_ns"] for row in rows)
    return rows


def median(rows: list[dict[str, Any]], column: str) -> int:
    return int(sorted(row[column] for row in rows)[len(rows) // 2])


def test_a_rank_that_waits_for_a_slow_one_is_communicating_and_the_slow_one_is_not(tmp_path: Path) -> None:
    launch(SETUP + DDP + FINISH, tmp_path)
    waiting, slow = (read_steps(tmp_path, rank)[7:] for rank in (0, 1))
    assert median(waiting, "communication_ns") > 0.8 * SLOW_S * 1e9
    assert median(slow, "communication_ns") < 0.4 * SLOW_S * 1e9
    assert median(waiting, "backward_ns") < 0.5 * SLOW_S * 1e9


def test_the_whole_reduction_is_longer_than_what_the_backward_waits_for(tmp_path: Path) -> None:
    launch(SETUP + DDP + FINISH, tmp_path)
    known = [row for row in read_steps(tmp_path, 0)[6:] if row["communication_total_ns"] is not None]
    assert known
    assert all(row["communication_ns"] <= row["communication_total_ns"] < row["duration_ns"] for row in known)
    assert median(known, "communication_total_ns") > median(known, "communication_ns")


def test_backwards_that_reduce_nothing_wait_for_nothing(tmp_path: Path) -> None:
    launch(SETUP + NO_SYNC + FINISH, tmp_path)
    rows = read_steps(tmp_path, 0)
    assert len(rows) == 8
    assert median(rows, "communication_ns") < 100_000
    assert all(row["communication_total_ns"] is None for row in rows)


def test_gathering_and_scattering_of_sharded_parameters_is_communication(tmp_path: Path) -> None:
    launch(SETUP + FSDP + FINISH, tmp_path)
    waiting, slow = (read_steps(tmp_path, rank) for rank in (0, 1))
    assert len(waiting) == 10
    assert min(row["communication_ns"] for row in waiting) > 0
    assert median(waiting[6:], "communication_ns") > 0.8 * SLOW_S * 1e9 > median(slow[6:], "communication_ns")
