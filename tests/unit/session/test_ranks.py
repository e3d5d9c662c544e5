"""Two ranks of one launch make one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector import open_run
from collector.environment import find_rank
from collector.format.phases import PHASE_NAMES
from tests.support.ranks import launch

TRAINING = """
import sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from collector import Profiler
from tests.support import shapes
torch.set_num_threads(1)
profiler = Profiler(sys.argv[1], window=None)
dist.init_process_group("gloo")
model = DistributedDataParallel(shapes.Net())
optimizer = shapes.sgd(model)
for x, y in shapes.loader():
    shapes.train_on(model, optimizer, [(x, y)])
    dist.all_reduce(torch.ones(1))
dist.barrier()
profiler.analyse()
dist.destroy_process_group()
"""


def test_ranks_of_a_launch_share_a_run_and_the_next_launch_sets_it_aside(tmp_path: Path) -> None:
    for _ in range(2):
        launch(TRAINING, tmp_path)
    assert len(list((tmp_path / "earlier").iterdir())) == 1
    run = open_run(tmp_path)
    assert (run.ranks, run.manifest.world_size, run.state) == ((0, 1), 2, "complete")
    for rank in run.ranks:
        steps = run.frame("steps", rank)
        train = steps[steps.kind == "train"]
        assert len(train) == 10
        assert (steps[[f"{name}_ns" for name in PHASE_NAMES]].sum(axis=1) == steps.duration_ns).all()
        assert (train.communication_ns > 0).all()


NAMES = (
    "RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "LOCAL_RANK",
)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}, (5, 16)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"WORLD_SIZE": "4"}, (0, 4)),
        ({"RANK": "no number"}, (0, 1)),
    ],
)
def test_rank_is_found(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[int, int]) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_rank() == expected
