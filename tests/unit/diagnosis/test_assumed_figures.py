"""What a rule assumes, where it cannot know: the figures that the limits name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import facts as make
from tests.unit.diagnosis.edges import noted


def test_half_of_the_computing_is_expected_to_run_on_all_threads() -> None:
    case = noted.threads(free=8.0)
    touched = make.find(case, "threads_too_few").what_if.touches
    assert sum(touched.values()) == pytest.approx(case.steps.mean_ns)
    assert make.find(case, "threads_too_few").fix == "8 threads"


def test_gradients_are_expected_to_be_copied_twice_at_five_gigabytes_per_second() -> None:
    found = make.find(noted.copying(0.25), "bucket_copies")
    assert "about 16.0 ms per step" in found.measured


def test_decoded_samples_are_expected_at_one_gigabyte_per_second() -> None:
    case = noted.decoding(100 * 50e6)  # 50 ms for each batch, and a twentieth of what decoding takes
    changed = make.find(case, "repeated_decode").what_if.change(case.loading.loop.model)
    left = changed.batches[0].wall_ns / case.loading.loop.model.batches[0].wall_ns
    assert left == pytest.approx(0.55)


def test_reductions_on_processors_may_slow_the_backward_too() -> None:
    """The lower end of the range may lie below what waiting alone explains; on a device it does not."""
    ranges = {}
    for kind in ("cpu", "cuda"):
        case = noted.accumulating(0.2)
        assert case.ranks.ddp is not None
        case = replace(case, ranks=replace(case.ranks, ddp=replace(case.ranks.ddp, device_type=kind)))
        finding = make.find(case, "no_sync_missing")
        ranges[kind] = finding.gain_range
        assert ("backward" in finding.what_if.touches) is (kind == "cpu")
    assert ranges["cpu"] == (0.7, 1.6)
    assert ranges["cuda"] == (0.7, 1.1)
