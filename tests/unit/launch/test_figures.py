"""The figures of benchmark.json, from ranges whose times are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.launch.benchmark.documents import Measured, build_mean, measure_spans
from collector.launch.benchmark.figures import (
    Calls,
    build_calls,
    build_data,
    build_means,
    collect_samples,
    summarize_samples,
)

MS = 1_000_000


def row(number: int, parent: int | None, path: str, ms: int, **more: Any) -> dict[str, Any]:
    base = {"id": number, "parent": parent, "name": path.rpartition("/")[2], "path": path, "start_ns": number}
    rest = {"duration_ns": ms * MS, "device_ns": 0, "batch": None, "total_items": None, "failed": False}
    return {**base, **rest, **more}


def make_calls(batches: int = 3, warmup: int = 1, end_batch: bool = False) -> Calls:
    """A pipeline of 100 ms; batch i takes 10 + i ms with 4 items, op1 in it 2 ms, twice, and op10 1 ms."""
    rows = [row(0, None, "pipeline", 100, device_ns=50 * MS)]
    for index in range(batches + end_batch):
        first, items = len(rows), 4 if index < batches else 0
        place = {"batch": index, "total_items": items, "device_ns": 5 * MS}
        rows.append(row(first, 0, "pipeline/batch", 10 + index, **place))
        rows += [
            row(first + n, first, f"pipeline/batch/{name}", ms)
            for n, name, ms in ((1, "op1", 2), (2, "op1", 2), (3, "op10", 1))
        ]
    return Calls(build_calls(rows), warmup)


def test_a_batch_is_a_child_with_its_number_and_times_per_item() -> None:
    pipeline = build_data(make_calls())["pipeline"]
    batch = {name: value for name, value in pipeline["batch_1"].items() if not isinstance(value, dict)}
    expected = {"cpu_time": 11, "gpu_time": 5, "total_items": 4, "cpu_time_per_item": 2.75, "gpu_time_per_item": 1.25}
    assert batch == expected
    assert [name for name, value in pipeline["batch_0"].items() if isinstance(value, dict)] == ["op1", "op1#2", "op10"]
    assert pipeline["batch_1"]["op10"] == {"cpu_time": 1, "gpu_time": 0}


@pytest.mark.parametrize(
    ("warmup", "items", "cpu", "gpu"), [(0, 12, 100, 50), (1, 4, 100 - 10 - 12, 50 - 5 - 5), (2, 0, None, None)]
)
def test_totals_leave_out_the_warm_up(warmup: int, items: int, cpu: float | None, gpu: float | None) -> None:
    calls = make_calls(warmup=warmup)
    pipeline = build_data(calls)["pipeline"]
    assert (pipeline["total_items"], pipeline["cpu_time"]) == (12, 100)
    left = [pipeline[f"{name}_minus_warmup"] for name in ("total_items", "cpu_time", "gpu_time")]
    assert left == [items, cpu, gpu]
    assert pipeline["cpu_time_minus_warmup_per_item"] == (None if cpu is None else cpu / items)
    assert ("pipeline/batch" in summarize_samples(collect_samples(calls))) == (cpu is not None)


def test_the_batch_that_ends_the_data_is_never_counted() -> None:
    with_end, without = make_calls(end_batch=True), make_calls()
    assert [call.batch for call in with_end.kept] == [call.batch for call in without.kept] == [1]
    assert build_data(with_end)["pipeline"]["total_items"] == 12
    assert build_means(with_end)["pipeline"]["batch"] == build_means(without)["pipeline"]["batch"]


def test_a_range_named_like_a_figure_takes_no_place_from_it_and_unknown_device_time_stays_unknown() -> None:
    roots = build_calls([row(0, None, "a", 9, device_ns=None), row(1, 0, "a/cpu_time", 4)])
    inner = {"cpu_time": 4, "gpu_time": 0}
    assert build_data(Calls(roots, 0))["a"] == {"cpu_time": 9, "gpu_time": None, "cpu_time#2": inner}


def test_means_are_over_the_batches() -> None:
    batch = build_means(make_calls(batches=4))["pipeline"]["batch"]
    assert batch["cpu_time"] == np.mean([10, 11, 12, 13])
    assert batch["op1"] == {"cpu_time": 2, "gpu_time": 0}


def test_statistics_are_numpys_over_the_kept_batches() -> None:
    found = summarize_samples(collect_samples(make_calls(batches=20, warmup=2)))["pipeline/batch"]
    assert found.keys() == {"cpu_time", "gpu_time", "cpu_time_per_item", "gpu_time_per_item"}
    stats = found["cpu_time"]
    kept = np.arange(12.0, 28.0)
    assert stats["total_items"] == 16 * 4
    assert stats["std"] == pytest.approx(kept.std())
    for name, share in (("percentile_16", 16), ("percentile_84", 84), ("percentile_95", 95), ("median", 50)):
        assert stats[name] == pytest.approx(np.percentile(kept, share))


def test_a_call_that_failed_is_listed_and_not_measured() -> None:
    calls = Calls(build_calls([row(0, None, "a", 9, failed=True), row(1, None, "b", 4)]), 0)
    assert build_data(calls) == {
        "a": {"cpu_time": 9, "gpu_time": 0, "failed": True},
        "b": {"cpu_time": 4, "gpu_time": 0},
    }
    assert {sample.path for sample in collect_samples(calls)} == build_means(calls).keys() == {"b"}


@given(st.integers(0, 12), st.integers(0, 8))
def test_batch_i_of_n_is_kept_by_the_rule(batches: int, warmup: int) -> None:
    kept = sorted(call.batch or 0 for call in make_calls(batches, warmup).kept)
    assert kept == [i for i in range(batches) if i + 1 > warmup and i + 1 + warmup <= batches]


def test_batches_that_are_left_inside_of_batches_that_are_not_have_their_throughput() -> None:
    inner = [row(n, 0, "outer/inner", 2, batch=n, total_items=1) for n in (1, 2, 3)]
    calls = Calls(build_calls([row(0, None, "outer", 9, batch=0, total_items=3), *inner]), 1)
    document: dict[str, Any] = {name: {} for name in ("data", "mean_data", "gpu_metrics", "data_stats_minus_warmup")}
    document["meta"] = {"total_batches": 4, "warnings": []}
    one = Measured("p", document, collect_samples(calls), measure_spans(calls, 0))
    stats = build_mean([one], [], 1)["data_stats_minus_warmup_all_procs"]
    assert stats == {"outer/inner": {"throughput": 1 / 2e-3, "throughput_per_process": [1 / 2e-3]}}
