"""Where steps or runs changed for good: found where they did, and hardly ever where they only vary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collector.format.intervals import Floats
from collector.format.schema.manifest import RunManifest
from profiler_server.analysis.change_points import MOST_RUNS, find_level_changes, find_shift
from profiler_server.analysis.history import find_last_change, find_run_changes
from profiler_server.store.headline import Headline, RunEntry
from tests.support.must import must

MS = 1_000_000


def make_steps(count: int, seed: int, follows: float = 0.0, spread: float = 0.05) -> np.ndarray:
    """Return steps of about 24 ms; each takes over a part of how far the one before it lay off."""
    random = np.random.default_rng(seed)
    noise = random.normal(0.0, spread, count)
    for at in range(1, count):
        noise[at] = follows * noise[at - 1] + np.sqrt(1 - follows**2) * noise[at]
    stalls = (random.random(count) < 0.02) * random.exponential(3.0, count)
    return np.asarray(24 * MS * np.exp(noise) * (1 + stalls), np.int64)


@pytest.mark.parametrize(("count", "at"), [(120, 60), (600, 150), (8_000, 7_000)])
@pytest.mark.parametrize("follows", [0.0, 0.5])
def test_the_step_at_which_all_became_longer_is_found(count: int, at: int, follows: float) -> None:
    durations = make_steps(count, at, follows)
    durations[at:] = durations[at:] * 31 // 24
    found = must(find_shift(durations))
    assert abs(found.at - at) <= 5
    assert found.change_frac == pytest.approx(7 / 24, abs=0.05)
    assert found.held_frac > 0.9


@pytest.mark.parametrize("count", [100, 400])
@pytest.mark.parametrize(("follows", "most"), [(0.0, 0), (0.7, 0), (0.95, 1)])
def test_steps_that_only_vary_have_no_change(count: int, follows: float, most: int) -> None:
    """Hardly even where each step takes after the one before it: then a hundred steps are few."""
    assert sum(find_shift(make_steps(count, seed, follows)) is not None for seed in range(10)) <= most


def test_steps_that_grow_steadily_have_no_such_step() -> None:
    for seed in range(4):
        assert find_shift((make_steps(600, seed) * np.linspace(1.0, 1.5, 600)).astype(np.int64)) is None


def test_one_stall_is_no_change() -> None:
    durations = make_steps(400, 3)
    durations[200:215] *= 20
    assert find_shift(durations) is None


def make_history(*levels: float, runs: int = 6, seed: int = 0, scatter: float = 0.01) -> tuple[float, ...]:
    """Medians of `runs` runs of each level."""
    random = np.random.default_rng(seed)
    values: Floats = np.repeat(levels, runs) * np.exp(scatter * random.standard_normal(len(levels) * runs))
    return tuple(values.tolist())


def test_the_first_run_of_a_new_level_is_found_with_the_medians_of_both() -> None:
    history = make_history(64e6, 70e6)
    (change,) = find_level_changes(history)
    assert (change.at, change.before, change.after) == (6, 6, 6)
    assert (change.before_ns, change.after_ns) == (np.median(history[:6]), np.median(history[6:]))
    assert change.change_frac == change.after_ns / change.before_ns - 1
    assert change.chance <= 0.01


def test_runs_that_differ_by_chance_or_drift_are_no_change_of_level() -> None:
    random = np.random.default_rng(1)
    changed = sum(bool(find_level_changes(tuple(100 * np.exp(0.01 * random.standard_normal(16))))) for _ in range(60))
    assert changed <= 3  # one in a hundred
    drift = tuple(100.0 * np.exp(0.02 * np.arange(24) + 0.01 * random.standard_normal(24)))
    assert find_level_changes(drift) == ()


def test_too_few_runs_and_runs_that_never_differ_tell_nothing() -> None:
    assert find_level_changes(make_history(64e6, 90e6, runs=3)) == ()
    assert find_level_changes((64e6,) * 20) == ()
    assert find_level_changes(()) == ()


def test_of_a_long_history_the_latest_runs_count() -> None:
    history = (*make_history(30e6, runs=100), *make_history(64e6, 70e6, runs=MOST_RUNS // 2))
    (change,) = find_level_changes(history)
    assert change.at == 100 + MOST_RUNS // 2


def make_entry(run_id: str, step_ns: float | None, previous: str | None) -> RunEntry:
    manifest = RunManifest(run_id, run_id, 1, 1, "collector", 1, "")
    return RunEntry(run_id, Path(run_id), manifest, Headline("complete", (0,), 100, step_ns, None), previous)


def test_histories_of_scripts_are_told_apart_and_runs_without_steps_are_in_none() -> None:
    entries: list[RunEntry] = []
    for at, (a_ns, b_ns) in enumerate(zip(make_history(64e6, 70e6), make_history(90e6, 90e6, seed=3), strict=True)):
        before = at - 1 if at else None
        entries.append(make_entry(f"a-{at}", a_ns, None if before is None else f"a-{before}"))
        entries.append(make_entry(f"empty-{at}", None, f"a-{at}"))
        entries.append(make_entry(f"b-{at}", b_ns, None if before is None else f"b-{before}"))
    newest_first = entries[::-1]
    assert list(find_run_changes(newest_first, {"a-11", "b-11"})) == ["a-6"]
    assert find_run_changes(newest_first, {"b-11"}) == {}


def test_a_run_is_told_the_change_that_it_begins_or_the_last_one_before_it() -> None:
    levels = make_history(64e6, 70e6, 60e6, runs=8)
    entries = [make_entry(f"a-{at}", level, f"a-{at - 1}" if at else None) for at, level in enumerate(levels)]
    newest_first = entries[::-1]
    told = {at: find_last_change(newest_first, f"a-{at}") for at in (7, 8, 15, 16, 23)}
    assert told[7] is None
    assert [told[at] and told[at][0] for at in (8, 15, 16, 23)] == ["a-8", "a-8", "a-16", "a-16"]  # type: ignore[index]
    assert told[23] == ("a-16", find_run_changes(newest_first, {"a-0"})["a-16"])
    assert find_last_change(newest_first, "b-0") is None
