"""Larger buckets of gradients: which reductions count, what they take by their size, and what the replay makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collector.format.run import Run
from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.analysis.replay.sightings.buckets import Buckets, TransferFit, _Joining, fit_transfers
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.machine import Sighting
from profiler_server.facts.results import Suggestion
from tests.support.must import must
from tests.support.windows import Machine, build_window

LATENCY_US, US_PER_MIB = 80.0, 100.0
KIB = 1 << 10
LAYERS, KERNEL_US = 24, 25.0
SIZES_KIB = (256, 768)


def take_us(size_bytes: int) -> float:
    return LATENCY_US + US_PER_MIB * size_bytes / (1 << 20)


def train(machine: Machine, per_bucket: int, hook: bool = True, sizes_kib: tuple[int, ...] = SIZES_KIB) -> None:
    """Run a forward and a backward whose layers are reduced `per_bucket` at a time."""
    for _ in range(4):
        machine.run("aten::mm", 10.0)
    held = 0
    for layer in range(LAYERS):
        machine.run("autograd::engine::evaluate_function: MmBackward0", KERNEL_US)
        held += sizes_kib[layer % len(sizes_kib)] * KIB
        if (layer + 1) % per_bucket == 0 or layer == LAYERS - 1:
            machine.reduce(take_us(held), held, in_hook=hook)
            held = 0
    machine.join()
    machine.run("aten::_foreach_add_", 20.0, 5.0, "multi_tensor_apply")


def see(run: Run) -> Sighting | None:
    replayed = must(replay_rank(run.rank()))
    assert replayed.is_valid
    return replayed.seen.get("larger_buckets")


def find_advice(run: Run) -> Suggestion | None:
    return next((found for found in diagnose(run, 0).suggestions if found.rule == "bucket_size"), None)


def mean_step_ns(run: Run) -> float:
    return float(run.rank().table("steps").to_pandas()["duration_ns"].iloc[5:-1].mean())


def test_the_step_with_larger_buckets_is_the_one_that_was_predicted(tmp_path: Path) -> None:
    small = build_window(tmp_path / "small", lambda machine: train(machine, 1))
    seen = must(see(small))
    assert seen.figures["latency_ns"] == pytest.approx(LATENCY_US * 1e3, rel=0.01)
    assert seen.figures["bytes_per_s"] == pytest.approx((1 << 20) / US_PER_MIB * 1e6, rel=0.01)
    assert (seen.count, seen.figures["backwards"]) == (4 * LAYERS, 4)
    advice = must(find_advice(small))
    assert advice.predicted_step_ns is not None
    wanted = round(seen.figures["cap_mib"])
    larger = build_window(tmp_path / "larger", lambda machine: train(machine, 2 * wanted))
    assert f"bucket_cap_mb={wanted}" in advice.change
    assert mean_step_ns(larger) < 0.9 * mean_step_ns(small)
    assert advice.predicted_step_ns == pytest.approx(mean_step_ns(larger), rel=0.05)
    assert find_advice(larger) is None


def test_buckets_that_the_backward_hides_are_left_as_they_are(tmp_path: Path) -> None:
    def hide(machine: Machine) -> None:
        for _ in range(LAYERS):
            machine.run("autograd::engine::evaluate_function: MmBackward0", 400.0)
            machine.reduce(take_us(256 * KIB), 256 * KIB)
        machine.join()
        machine.run("aten::_foreach_add_", 20.0, 5.0, "multi_tensor_apply")

    assert find_advice(build_window(tmp_path, hide)) is None


def test_reductions_that_no_gradient_starts_are_no_buckets(tmp_path: Path) -> None:
    assert see(build_window(tmp_path, lambda machine: train(machine, 1, hook=False), steps=6)) is None


def test_buckets_of_one_size_predict_nothing(tmp_path: Path) -> None:
    run = build_window(tmp_path, lambda machine: train(machine, 1, sizes_kib=(512,)))
    seen = must(see(run))
    assert seen.gain is None
    assert find_advice(run) is None
    assert any(entry.rule == "bucket_size" and "two sizes" in entry.missing for entry in diagnose(run, 0).abstained)


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([1000, 1000, 1000], [10, 11, 12]),  # one size
        ([1000, 1100], [10, 11]),  # hardly two
        ([1000, 4000], [20, 10]),  # the larger one is shorter
        ([1000, 2000, 3000, 4000], [30, 10, 40, 20]),  # size explains nothing
        ([1000, 4000], [10, 50]),  # a latency below zero
    ],
)
def test_times_that_sizes_do_not_explain_are_not_fitted(sizes: list[int], lengths: list[int]) -> None:
    assert fit_transfers(np.array(sizes, np.int64), np.array(lengths, np.int64)) is None


def test_waits_for_slower_ranks_do_not_count_as_transfer() -> None:
    sizes = np.array([1000, 4000] * 3, np.int64)
    fit = must(fit_transfers(sizes, np.array([2000, 5000, 9000, 5000, 2000, 70000], np.int64)))
    assert fit.latency_ns == pytest.approx(1000)
    assert fit.ns_per_byte == pytest.approx(1.0)


@pytest.mark.parametrize(("waits_add_up", "length_ns"), [(True, 14_000.0), (False, 12_000.0)])
def test_a_larger_bucket_waits_for_slower_ranks_as_long_as_the_one_of_its_parts_that_waits_longest(
    waits_add_up: bool, length_ns: float
) -> None:
    """Three reductions with a latency of 1 µs and 1 ns for each byte, which wait 0, 1 and 5 µs for other ranks."""
    bytes_of, length = np.array([1000, 2000, 3000], np.int64), np.array([2000, 4000, 9000], np.int64)
    numbers = np.arange(3)
    buckets = Buckets(numbers, numbers, bytes_of, length, np.zeros(3, np.int64))
    joining = _Joining(1, (numbers,), TransferFit(1000.0, 1.0))
    assert joining.list_lengths(buckets, 0.5, waits_add_up).tolist() == [length_ns]
