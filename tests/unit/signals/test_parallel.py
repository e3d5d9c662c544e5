"""How a model is spread over devices and ranks is noted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from profiler_server.analysis.ranks.ranks import read_ddp
from tests.support import shapes
from tests.support.recording import record


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_settings_of_ddp_are_noted(tmp_path: Path) -> None:
    def loop() -> None:
        model = DistributedDataParallel(shapes.Net(), find_unused_parameters=True)
        shapes.train_on(model, shapes.sgd(model), shapes.loader())

    recorded = record(tmp_path / "run", loop)
    ddp = read_ddp(recorded.run.rank().manifest.facts)
    assert ddp is not None
    assert (ddp.backend, ddp.device_type, ddp.finds_unused, ddp.shares_buckets) == ("gloo", "cpu", True, False)
    assert ddp.unused_bytes == 0
    assert ddp.parameter_bytes == 4 * sum(parameter.numel() for parameter in shapes.Net().parameters())
    assert sum(ddp.bucket_bytes) == ddp.parameter_bytes
    assert ddp.backwards == ddp.synced_backwards > 0


@pytest.mark.usefixtures("group")
def test_backwards_without_a_reduction_are_told_apart(tmp_path: Path) -> None:
    def loop() -> None:
        model = DistributedDataParallel(shapes.Net())
        optimizer = shapes.sgd(model)
        for at, (x, y) in enumerate(shapes.loader(320)):
            if at % 4 == 3:
                shapes.loss_of(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                with model.no_sync():
                    shapes.loss_of(model(x), y).backward()

    ddp = read_ddp(record(tmp_path / "run", loop).run.rank().manifest.facts)
    assert ddp is not None
    # The first backwards come before the module is known.
    assert 0 < ddp.synced_backwards < 0.5 * ddp.backwards
    assert not ddp.syncs_all


def test_data_parallel_is_noted_with_its_devices(tmp_path: Path) -> None:
    def loop() -> None:
        model = nn.DataParallel(shapes.Net())
        shapes.train_on(model, shapes.sgd(model), shapes.loader())

    assert record(tmp_path, loop).run.rank().manifest.facts["data_parallel"] == torch.cuda.device_count()


def test_a_plain_model_has_no_such_facts(tmp_path: Path) -> None:
    facts = record(tmp_path, shapes.plain).run.rank().manifest.facts
    assert not {"ddp", "data_parallel"} & facts.keys()


@pytest.mark.parametrize("noted", [None, 7, [], {"bucket_bytes": 3}, {"bucket_bytes": ["x", True], "backwards": -1}])
def test_damaged_facts_are_no_settings(noted: object) -> None:
    ddp = read_ddp({"ddp": noted})
    assert ddp is None or (ddp.bucket_bytes, ddp.backwards, ddp.syncs_all) == ((), 0, False)
