"""Figures of the traces that the repository carries, against torch.profiler's own sums and against a ruler."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun
from collector.traces.importing import import_trace
from profiler_server.analysis.accounting.categories import list_categories
from profiler_server.analysis.device.device import summarize_device

TRACES = Path(__file__).parent / "traces"


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> RankRun:
    return import_trace(TRACES / "cnn_cpu.json.gz", tmp_path_factory.mktemp("carried") / "cnn").rank()


@pytest.fixture(scope="module")
def two_streams(tmp_path_factory: pytest.TempPathFactory) -> RankRun:
    return import_trace(TRACES / "two_streams.json", tmp_path_factory.mktemp("carried") / "two").rank()


def _train(rank: RankRun) -> list[dict[str, Any]]:
    return [row for row in rank.table("steps").to_pylist() if row["kind"] == "train"]


def test_every_step_is_as_long_as_its_marker(cnn: RankRun) -> None:
    assert [(row["step"], row["duration_ns"]) for row in _train(cnn)] == [
        (2, 1_652_746),
        (3, 887_143),
        (4, 714_826),
        (5, 6_553_314),
    ]


def test_the_phases_of_a_step_are_as_the_trace_has_them(cnn: RankRun) -> None:
    step = _train(cnn)[1]
    assert {name: step[f"{name}_ns"] for name in PHASE_NAMES} == {
        "gap": 7_911,
        "data_wait": 143_675,  # the loader's annotation
        "h2d": 15_994,
        "forward": 299_437,
        "backward": 298_295,
        "communication": 0,
        "optimizer": 115_521,
        "tail": 6_310,
    }


def test_the_wait_for_data_is_the_loaders_annotation(cnn: RankRun) -> None:
    events = json.loads(gzip.decompress((TRACES / "cnn_cpu.json.gz").read_bytes()))["traceEvents"]
    waits = [round(event["dur"] * 1000) for event in events if "DataLoader" in event["name"]]
    assert [row["data_wait_ns"] for row in _train(cnn)] == waits
    categories = list_categories(cnn)
    assert categories is not None
    assert categories["dataloader"].tolist() == waits
    assert not categories["kernel"].any()


def test_operators_are_summed_as_torch_profiler_sums_them(cnn: RankRun) -> None:
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in cnn.table("operators", columns=["name", "count", "self_ns"]).to_pylist():
        found[row["name"]][0] += row["count"]
        found[row["name"]][1] += row["self_ns"]
    with (TRACES / "cnn_cpu.operators.csv").open(encoding="utf-8") as file:
        expected = {r["name"]: [int(r["count"]), round(float(r["self_us"]) * 1000)] for r in csv.DictReader(file)}
    assert len(expected) > 30
    assert {name: sums for name, sums in found.items() if name.startswith("aten::")} == expected


def test_device_time_is_told_apart_as_by_a_ruler(two_streams: RankRun) -> None:
    """Work runs from 100 µs to 800 µs of the step.

    Kernels that compute have 100 to 300, 400 to 500 and 700 to 800, a collective 300 to 600, a copy 650 to 750.
    """
    found = summarize_device(two_streams)
    assert found is not None
    assert found.linked_only.total_ns == found.total_ns == 700_000
    assert found.computation_ns == 400_000
    assert found.exposed_communication_ns == 200_000
    assert found.exposed_copy_ns == 50_000
    assert found.idle_ns == 50_000
    assert found.utilization_frac == pytest.approx(0.6)


def test_a_step_breaks_down_as_by_a_ruler(two_streams: RankRun) -> None:
    """What the device does hides what the host does: of five calls of 10 µs the first two are seen."""
    found = list_categories(two_streams)
    assert found is not None
    assert {name: int(values[0]) // 1000 for name, values in found.items()} == {
        "kernel": 400,
        "memcpy": 50,
        "memset": 0,
        "communication": 200,
        "runtime": 20,
        "dataloader": 0,
        "cpu_exec": 60,
        "other": 270,
    }
