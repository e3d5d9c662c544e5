"""Two benchmarks side by side: what is faster, whether that may be chance, and what makes them unlike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from collector.launch.benchmark.comparison import compare_benchmarks, format_speed_up

BATCH = "batch"


def build(values: list[float], processes: int = 1, **meta: Any) -> dict[str, Any]:
    """Build a document of processes that all took these times, and reached 10 items per second each."""
    figures: dict[str, Any] = {"mean": float(np.mean(values)), "std": float(np.std(values)), "count": len(values)}
    figures["process_means"] = [figures["mean"] * (1 + number / 100) for number in range(processes)]
    stats_of = {
        BATCH: {"cpu_time": figures, "throughput": 10.0 * processes, "throughput_per_process": [10.0] * processes}
    }
    device = {"p": {"device": {"names": ["cpu"]}}}
    base = {"processes": [f"p{number}" for number in range(processes)], "warmup_batches": 1, "per_process": device}
    return {"data_stats_minus_warmup_all_procs": stats_of, "meta": base | meta}


def read_cpu_time(found: dict[str, Any]) -> tuple[float, ...]:
    return (found["ranges"][BATCH]["cpu_time"], *found["intervals"][BATCH]["cpu_time"])


def test_speed_up_is_baseline_by_run_and_of_a_rate_run_by_baseline() -> None:
    slow, quick = build([30.0, 30.0]), build([10.0, 10.0], processes=3)
    found = compare_benchmarks(slow, quick)["ranges"]
    assert found == {BATCH: {"cpu_time": 3.0, "throughput": 3.0}}


def test_the_interval_is_that_of_a_ratio_of_two_means() -> None:
    old, new = [20.0, 21.0, 19.0, 20.0, 22.0], [10.0, 11.0, 10.5, 9.5, 10.0, 10.0]
    value, low, high = read_cpu_time(compare_benchmarks(build(old), build(new)))
    relative = np.hypot(stats.sem(old) / np.mean(old), stats.sem(new) / np.mean(new))
    factor = np.exp(stats.t.ppf(0.975, 4) * relative)
    assert value == pytest.approx(np.mean(old) / np.mean(new))
    assert (low, high) == pytest.approx((value / factor, value * factor), rel=1e-3)
    assert low > 1


def test_the_table_says_what_is_within_the_noise_and_what_was_measured_once() -> None:
    noisy = compare_benchmarks(build([10.0, 14.0, 12.0]), build([11.0, 13.0, 11.0]))
    (line,) = (line for line in format_speed_up(noisy).splitlines() if "cpu_time" in line)
    assert line.endswith("within the noise")
    once = compare_benchmarks(build([10.0]), build([11.0]))
    assert once["intervals"] == {BATCH: {"cpu_time": None, "throughput": None}}
    assert format_speed_up(once).count("measured once") == 2
    other = {"data_stats_minus_warmup_all_procs": {"other": {"cpu_time": {"mean": 1.0}}}}
    assert "no range in common" in format_speed_up(compare_benchmarks(build([1.0]), other))


def test_several_processes_are_compared_by_their_means() -> None:
    found = compare_benchmarks(build([10.0, 10.0], processes=3), build([5.0, 5.0], processes=3))
    scatter = np.array([1.0, 1.01, 1.02])
    factor = np.exp(stats.t.ppf(0.975, 2) * np.sqrt(2) * stats.sem(scatter) / scatter.mean())
    assert read_cpu_time(found)[2] == pytest.approx(2 * factor, rel=1e-3)


def test_a_document_of_an_earlier_version_is_compared_without_an_interval() -> None:
    old = {"data_stats_minus_warmup_all_procs": {BATCH: {"cpu_time": {"mean": 30.0, "std": 1.0}, "throughput": 5.0}}}
    found = compare_benchmarks(old, build([10.0, 11.0]))
    assert (found["intervals"][BATCH]["cpu_time"], found["ranges"][BATCH]["throughput"]) == (None, 2.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"processes": 2}, "the baseline ran 1 and this benchmark 2 processes"),
        ({"warmup_batches": 3}, "leaves out 1 and this benchmark 3 batches"),
        ({"per_process": {"p": {"device": {"names": ["NVIDIA H100"]}}}}, "the devices differ: cpu in the baseline"),
        ({}, ""),
    ],
)
def test_what_makes_two_benchmarks_unlike_is_told(change: dict[str, Any], told: str) -> None:
    warnings = compare_benchmarks(build([10.0]), build([10.0], **change))["warnings"]
    assert len(warnings) == (told != "")
    assert told in "".join(warnings)
