"""Figures of real traces, against those that other tools and the definitions give.

The expected files are TraceLens's. It computes with doubles of microseconds since the boot of the machine, whose last
bit is a quarter of a nanosecond, and sums; so its sums are off by some nanoseconds, and ours are exact.
"""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest

from collector.format.run import RankRun
from collector.notebook.run import open_run
from profiler_server.analysis.accounting.categories import list_categories, summarize_categories
from profiler_server.analysis.device.device import summarize_device
from profiler_server.diagnosis.judging import diagnose
from profiler_server.format import format_share
from profiler_server.page import PageRequest
from profiler_server.pages.device import build as build_device_page
from tests.golden.conftest import Samples
from tests.support.traces import find_sample

NAMES = ("bert_small_h100", "owlv2_h100", "qwen05b_h100", "vit_mi300")
ROUNDING_NS = 15


@pytest.fixture
def resnet(samples: Samples) -> RankRun:
    return samples["resnet50_v100_workers0.pt.trace"].rank()


def _read_expected(name: str, kind: str) -> list[dict[str, str]]:
    with find_sample(f"expected/{name}.{kind}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_mean_step_breaks_down_as_expected(resnet: RankRun) -> None:
    found = summarize_categories(resnet)
    assert found is not None
    assert {name: round(value / 1000) for name, value in found.items()} == {
        "kernel": 98589,
        "memcpy": 1915,
        "memset": 89,
        "communication": 0,
        "runtime": 2908,
        "dataloader": 59262,
        "cpu_exec": 13674,
        "other": 1156,
    }
    assert round(sum(found.values()) / 1000) == 177592


def test_first_step_breaks_down_as_expected(resnet: RankRun) -> None:
    found = list_categories(resnet)
    assert found is not None
    first = [int(found[name][0]) // 1000 for name in found if name != "communication"]
    assert first == [98598, 1941, 90, 2796, 69317, 14091, 1115]
    assert sum(first) == 187948


def test_device_figures_are_as_expected(resnet: RankRun) -> None:
    found = summarize_device(resnet)
    assert found is not None
    fractions = (found.utilization_frac, found.sm_efficiency_frac, found.occupancy_frac, found.tensor_core_frac)
    assert [round(100 * (value or 0.0), 2) for value in fractions] == [55.51, 54.68, 49.13, 0.0]


def test_a_last_step_behind_an_outlier_counts(samples: Samples) -> None:
    rank = samples["resnet50_v100_workers4.pt.trace"].rank()
    assert [row["step"] for row in rank.table("steps").to_pylist() if row["kind"] == "train"] == [5, 6, 7, 8, 9, 10]
    found, device = summarize_categories(rank), summarize_device(rank)
    assert found is not None
    assert device is not None
    assert [round(value / 1000) for value in found.values()] == [99145, 3160, 98, 0, 10564, 1186, 22665, 4251]
    assert round(sum(found.values()) / 1000) == 141068
    fractions = (device.utilization_frac, device.sm_efficiency_frac, device.occupancy_frac, device.tensor_core_frac)
    assert [round(100 * (value or 0.0), 2) for value in fractions] == [70.27, 69.22, 48.91, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_device_time_is_accounted_as_expected(samples: Samples, name: str) -> None:
    found = summarize_device(samples[name].rank())
    assert found is not None
    linked = found.linked_only
    expected = {row["type"]: float(row["time ms"]) * 1e6 for row in _read_expected(name, "gpu_timeline")}
    assert linked.computation_ns == pytest.approx(expected["computation_time"], abs=ROUNDING_NS)
    assert linked.exposed_communication_ns == pytest.approx(expected["exposed_comm_time"], abs=ROUNDING_NS)
    assert linked.exposed_copy_ns == pytest.approx(expected["exposed_memcpy_time"], abs=ROUNDING_NS)
    assert linked.idle_ns == pytest.approx(expected["idle_time"], abs=ROUNDING_NS)
    assert linked.total_ns == pytest.approx(expected["total_time"], abs=1)


def test_device_executions_are_busy_for_as_long_as_the_device_was(samples: Samples) -> None:
    found = open_run(samples["bert_small_h100"].path).device_executions()
    assert [found.total_ns.sum(), found.busy_ns.sum()] == [3_907_825, 309_437]


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_as_expected(samples: Samples, name: str) -> None:
    found: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0, 1 << 62, 0])
    for row in samples[name].rank().table("kernels").to_pylist():
        entry = found[row["operator"] or "", row["name"], row["stream"]]
        entry[0] += row["total_ns"]
        entry[1] += row["count"]
        entry[2], entry[3] = min(entry[2], row["min_ns"]), max(entry[3], row["max_ns"])
    for row in _read_expected(name, "kernel_summary"):
        column = "Kernel duration (µs)"
        key = (row["Parent cpu_op"], row["Kernel name"], int(row["Kernel stream"]))
        expected = [round(float(row[f"{column}_{kind}"]) * 1000) for kind in ("sum", "min", "max")]
        total, count, shortest, longest = found[key]
        assert ([total, shortest, longest], count) == (expected, int(row[f"{column}_count"]))


@pytest.mark.parametrize("name", NAMES)
def test_device_time_of_operators_is_as_expected(samples: Samples, name: str) -> None:
    own: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = defaultdict(int)
    for row in (
        samples[name].rank().table("operators", columns=["name", "device_self_ns", "device_total_ns"]).to_pylist()
    ):
        own[row["name"]] += row["device_self_ns"]
        whole[row["name"]] += row["device_total_ns"]
    for row in _read_expected(name, "ops_summary"):
        assert own[row["name"]] == pytest.approx(float(row["total_direct_kernel_time_sum"]) * 1000, abs=ROUNDING_NS)
        # Of aten::where TraceLens sums only the calls that launched work themselves: 5 of 10 in one of these traces.
        if (name, row["name"]) == ("owlv2_h100", "aten::where"):
            continue
        assert whole[row["name"]] == pytest.approx(float(row["total_subtree_kernel_time_sum"]) * 1000, abs=ROUNDING_NS)


def test_the_verdict_and_the_device_page_give_one_idle_time(samples: Samples) -> None:
    run = samples["negative_queue"]
    device = summarize_device(run.rank())
    assert device is not None
    assert f"idles {format_share(device.idle_frac)} of the step" in diagnose(run, 0).sentence
    (panel,) = build_device_page(PageRequest(run, "run", 0, (0,), {})).devices
    idle_frac = sum(part.share_frac for part in panel.accounts if part.label.startswith("Idle"))
    assert idle_frac == pytest.approx(device.idle_frac)
    steps = [row for row in run.rank().table("steps").to_pylist() if row["kind"] == "train"]
    assert max(row["tail_ns"] / row["duration_ns"] for row in steps) < 0.2


def test_a_trace_that_only_infers_spends_its_time_in_forward(samples: Samples) -> None:
    rank = samples["owlv2_h100"].rank()
    steps = [row for row in rank.table("steps").to_pylist() if row["kind"] == "train"]
    assert [round(row["forward_ns"] / 1e6) for row in steps] == [586]
    assert sum(row["gap_ns"] for row in steps) < 5_000_000
