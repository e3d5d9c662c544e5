"""What modules of the first steps say of the model: how it is spread."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from collector.signals.communication import TRIALS, ReadingPace
from collector.signals.environment import count_memory_nodes
from profiler_server.analysis.ranks.ranks import read_ddp
from tests.support import shapes
from tests.support.recording import record

BACKWARD_NS = 100_000_000


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("reduces_every", [1, 4])
def test_settings_of_ddp_are_noted(tmp_path: Path, reduces_every: int) -> None:
    def loop() -> None:
        model = DistributedDataParallel(shapes.Net(), find_unused_parameters=True)
        optimizer = shapes.sgd(model)
        for at, (x, y) in enumerate(shapes.loader(320)):
            with nullcontext() if at % reduces_every == reduces_every - 1 else model.no_sync():
                shapes.loss_of(model(x), y).backward()
            if at % reduces_every == reduces_every - 1:
                optimizer.step()
                optimizer.zero_grad()

    ddp = read_ddp(record(tmp_path / "run", loop).run.rank().manifest.facts)
    assert ddp is not None
    assert (ddp.backend, ddp.device_type, ddp.finds_unused, ddp.shares_buckets) == ("gloo", "cpu", True, False)
    assert ddp.unused_bytes == 0
    assert ddp.parameter_bytes == 4 * sum(parameter.numel() for parameter in shapes.Net().parameters())
    assert sum(ddp.bucket_bytes) == ddp.parameter_bytes
    if reduces_every == 1:
        assert ddp.backwards == ddp.synced_backwards > 0
    else:  # the first backwards come before the module is known
        assert 0 < ddp.synced_backwards < 0.5 * ddp.backwards
        assert not ddp.syncs_all


@pytest.mark.parametrize("wrap", [nn.DataParallel, nn.Sequential])
def test_data_parallel_is_noted_with_its_devices_and_a_plain_model_is_not(tmp_path: Path, wrap: type) -> None:
    def loop() -> None:
        model = wrap(shapes.Net())
        shapes.train_on(model, shapes.sgd(model), shapes.loader(48))

    facts = record(tmp_path, loop).run.rank().manifest.facts
    expected = {"data_parallel": torch.cuda.device_count()} if wrap is nn.DataParallel else {}
    assert {name: facts[name] for name in ("ddp", "data_parallel") if name in facts} == expected


@pytest.mark.parametrize("noted", [None, 7, [], {"bucket_bytes": 3}, {"bucket_bytes": ["x", True], "backwards": -1}])
def test_damaged_facts_are_no_settings(noted: object) -> None:
    ddp = read_ddp({"ddp": noted})
    assert ddp is None or (ddp.bucket_bytes, ddp.backwards, ddp.syncs_all) == ((), 0, False)


def test_a_reading_that_was_interrupted_does_not_end_the_readings() -> None:
    pace = ReadingPace()
    pace.note(50_000_000)
    assert pace.choose_every(BACKWARD_NS) == 1
    for _ in range(TRIALS - 1):
        pace.note(90_000)
    assert pace.choose_every(BACKWARD_NS) == 1


def test_dear_readings_become_rare() -> None:
    pace = ReadingPace()
    for _ in range(TRIALS):
        pace.note(90_000)
    assert pace.choose_every(1_000_000) == 64


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    threads, anomaly = torch.get_num_threads(), torch.is_anomaly_enabled()
    yield
    torch.set_num_threads(threads)
    torch.autograd.set_detect_anomaly(anomaly)
    torch.use_deterministic_algorithms(False)


def test_what_the_script_sets_counts_although_it_is_off_again_at_the_end(tmp_path: Path) -> None:
    wanted = torch.get_num_threads() + 3

    def loop() -> None:
        torch.set_num_threads(wanted)
        for is_on in (True, False):
            torch.autograd.set_detect_anomaly(is_on)
            torch.use_deterministic_algorithms(is_on)
            shapes.plain()

    run = record(tmp_path, loop).run
    gc.collect()  # reading the settings leaves nothing behind
    manifest = run.rank().manifest
    assert manifest.torch_threads == wanted
    assert manifest.facts["anomaly_mode"] is True
    assert manifest.switched == {"deterministic": "torch.use_deterministic_algorithms(False)"}
    assert manifest.facts["matmul_precision"] == torch.get_float32_matmul_precision()


def test_the_dtypes_of_the_parameters_are_counted(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8).double(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model[0](torch.randn(2, 4, dtype=torch.float64)).sum().backward()
            optimizer.step()

    facts = record(tmp_path, loop).run.rank().manifest.facts
    assert facts["optimizers"][0]["dtypes"] == {"float64": 40, "float32": 18}


@pytest.mark.parametrize(("lists", "nodes"), [(["0-511"], 1), (["0-3,4-255", "256-511"], 1), ([], None), (["x"], None)])
def test_memory_nodes_are_those_of_the_own_processors(lists: list[str], nodes: int | None, tmp_path: Path) -> None:
    for number, text in enumerate(lists):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{text}\n")
    assert count_memory_nodes(tmp_path) == nodes
