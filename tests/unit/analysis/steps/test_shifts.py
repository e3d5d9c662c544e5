"""Where the usual step became longer for good: found where it did, and hardly ever where steps only vary."""

from __future__ import annotations

import numpy as np
import pytest

from profiler_server.analysis.change_points import find_shift
from profiler_server.facts.steps import Shift

MS = 1_000_000


def make_steps(count: int, seed: int, follows: float = 0.0, spread: float = 0.05) -> np.ndarray:
    """Return steps of about 24 ms; each takes over a part of how far the one before it lay off."""
    random = np.random.default_rng(seed)
    noise = random.normal(0.0, spread, count)
    for at in range(1, count):
        noise[at] = follows * noise[at - 1] + np.sqrt(1 - follows**2) * noise[at]
    stalls = (random.random(count) < 0.02) * random.exponential(3.0, count)
    return np.asarray(24 * MS * np.exp(noise) * (1 + stalls), np.int64)


def must_shift(durations: np.ndarray) -> Shift:
    found = find_shift(durations)
    assert found is not None
    return found


@pytest.mark.parametrize(("count", "at"), [(120, 60), (600, 150), (8_000, 4_012), (8_000, 7_000)])
@pytest.mark.parametrize("follows", [0.0, 0.5])
def test_the_step_at_which_all_became_longer_is_found(count: int, at: int, follows: float) -> None:
    durations = make_steps(count, at, follows)
    durations[at:] = durations[at:] * 31 // 24
    found = must_shift(durations)
    assert abs(found.at - at) <= 5
    assert found.change_frac == pytest.approx(7 / 24, abs=0.05)
    assert found.held_frac > 0.9


@pytest.mark.parametrize("count", [100, 400, 3_000])
@pytest.mark.parametrize(("follows", "most"), [(0.0, 0), (0.7, 0), (0.95, 1)])
def test_steps_that_only_vary_have_no_change(count: int, follows: float, most: int) -> None:
    """Hardly even where each step takes after the one before it: then a hundred steps are few."""
    assert sum(find_shift(make_steps(count, seed, follows)) is not None for seed in range(20)) <= most


def test_steps_that_grow_steadily_have_no_such_step() -> None:
    for seed in range(10):
        assert find_shift((make_steps(600, seed) * np.linspace(1.0, 1.5, 600)).astype(np.int64)) is None


def test_equal_steps_and_few_steps_have_no_change() -> None:
    assert find_shift(np.full(500, 24 * MS)) is None
    assert find_shift(np.array([24 * MS] * 30 + [48 * MS] * 30)) is None
    assert find_shift(np.array([], np.int64)) is None


def test_steps_that_became_shorter_are_told_by_their_sign() -> None:
    durations = make_steps(400, 1)
    durations[:200] *= 2
    assert must_shift(durations).change_frac == pytest.approx(-0.5, abs=0.05)


def test_one_stall_is_no_change() -> None:
    durations = make_steps(400, 3)
    durations[200:215] *= 20
    assert find_shift(durations) is None
