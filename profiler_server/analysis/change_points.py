"""Where values in a row part into two levels: the steps of a run, or the runs of a script.

The statistic is the maximally selected standardised rank sum (Lausen and Schumacher 1992, Biometrics 48): of all places
that part the values, the one that ranks tell apart best. Ranks make it blind to how far single values lie off, and its
distribution without a change depends on the number of values alone, so it is found by permutation, with a fixed seed.
(scipy has no such statistic, and its `stats` takes a second to import, for ranks that take four lines.)

Steps depend on the steps before them: whatever slows one slows the next. So they are first put together into blocks,
of which the median counts, and the blocks are made longer until the median of one says nothing of the next. Of runs,
each change found parts the history, and both parts are looked at again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.facts import SHIFT_CHANCE
from profiler_server.diagnosis.limits.steps import LEAST_BLOCK, LEAST_BLOCKS, MOST_DEPENDENCE
from profiler_server.facts.steps import Shift
from profiler_server.store.headline import RunEntry

LEAST_SIDE = 4
"""Values before and after a change, at least."""
LINE_FRAC = 0.75
"""A step must explain the values better than a straight line: what is left over is less than this part."""
MOST_VALUES = 80
_PERMUTATIONS = 9_999
_SEED = 20


def rank_values(values: Floats) -> Floats:
    """Return the ranks of values from 1, the mean rank for those that are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = ((ends - counts + ends + 1) / 2)[inverse.reshape(-1)]
    return ranks


def part_ranks(ranks: Floats) -> tuple[int, float]:
    """Return how many values lie before the place that parts them best, and how well it does."""
    scores = _score(ranks[None, :])[0]
    best = int(np.argmax(scores))
    return best + LEAST_SIDE, float(scores[best])


def find_chance(count: int, score: float) -> float:
    """Return how often so many values without a change score as much."""
    best = _permute(count)
    return float(len(best) - np.searchsorted(best, score - 1e-9) + 1) / (len(best) + 1)


def measure_dependence(values: Floats, *parted: int) -> float:
    """Return how much a value tells of the next one, by ranks within what lies between the changes."""
    sides = [rank_values(side) - (len(side) + 1) / 2 for side in np.split(values, parted)]
    pairs = [(side[:-1], side[1:]) for side in sides if len(side) > 1]
    spread = sum(float((side**2).sum()) for side in sides)
    return sum(float((left * right).sum()) for left, right in pairs) / spread if spread else 0.0


def beats_line(values: Floats, parted: int) -> bool:
    """Say whether one step explains the values better than a steady slope does."""
    places = np.arange(len(values), dtype=np.float64)
    line = np.polyval(np.polyfit(places, values, 1), places)
    step = np.where(places < parted, np.median(values[:parted]), np.median(values[parted:]))
    return float(np.abs(values - step).sum()) <= LINE_FRAC * float(np.abs(values - line).sum())


def _score(ranks: Floats) -> Floats:
    count = ranks.shape[1]
    first = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, first - 1]
    scores: Floats = np.abs(sums) / np.sqrt(first * (count - first) * (count + 1) / 12)
    return scores


@derived()
def _permute(count: int) -> Floats:
    random = np.random.default_rng(_SEED)
    rows: Floats = np.argsort(random.random((_PERMUTATIONS, count)), axis=1).astype(np.float64) + 1.0
    scores: Floats = np.sort(_score(rows).max(axis=1))
    return scores


def find_shift(durations_ns: Ints) -> Shift | None:
    """Return where the steps became longer or shorter for good, None where that may be chance, or is a slope."""
    length = max(LEAST_BLOCK, -(-len(durations_ns) // MOST_VALUES))
    while len(durations_ns) // length >= LEAST_BLOCKS:
        blocks = _form_blocks(durations_ns, length)
        parted, score = part_ranks(rank_values(blocks))
        if measure_dependence(blocks, parted) <= MOST_DEPENDENCE:
            chance = find_chance(len(blocks), score)
            return _describe(durations_ns, blocks, parted, length, chance) if chance <= SHIFT_CHANCE else None
        length *= 2
    return None


def _describe(durations_ns: Ints, blocks: Floats, parted: int, length: int, chance: float) -> Shift | None:
    if not beats_line(blocks, parted):
        return None
    at = _refine(durations_ns, parted * length, length)
    before, after = float(np.median(durations_ns[:at])), float(np.median(durations_ns[at:]))
    middle, grows = (before + after) / 2, after > before
    low, high = blocks[:parted] < middle, blocks[parted:] > middle
    held = min(float((low == grows).mean()), float((high == grows).mean()))
    return Shift(at, before, after, chance, held)


def _form_blocks(durations_ns: Ints, length: int) -> Floats:
    count = len(durations_ns) // length
    whole: Floats = np.median(durations_ns[: count * length].reshape(count, length), axis=1)
    whole[-1] = np.median(durations_ns[(count - 1) * length :])
    return whole


def _refine(durations_ns: Ints, at: int, length: int) -> int:
    """Return the step nearest to a border of blocks that parts short and long steps best."""
    first, last = max(at - length, 1), min(at + length, len(durations_ns) - 1)
    middle = (np.median(durations_ns[: at - length or at]) + np.median(durations_ns[at + length or at :])) / 2
    grows = np.median(durations_ns[at:]) > np.median(durations_ns[:at])
    is_late = (durations_ns > middle) == grows
    # Places are counted right where they are early before the border and late after it.
    gains = np.cumsum(np.where(is_late[first:last], -1, 1))
    return first + int(np.argmax(np.concatenate([[0], gains])))


CHANCE = 0.01
"""Of so many histories without a change, one is said to have one, if runs do not depend on the runs before them."""
MOST_RUN_DEPENDENCE = 0.4
"""Correlation of a run with the next, changes taken out, up to which runs count as independent."""
MOST_RUNS = 40
"""Runs that are looked at, the latest; more makes no change of today clearer."""


@dataclass(frozen=True)
class LevelChange:
    """The run at the place `at` is the first of a new level. The levels are the medians of the runs from the change
    before to this one, and from this one to the change after it; `before` and `after` count these runs."""

    at: int
    before_ns: float
    after_ns: float
    before: int
    after: int
    chance: float

    @property
    def change_frac(self) -> float:
        return self.after_ns / self.before_ns - 1.0


def find_run_changes(newest_first: Sequence[RunEntry], shown: Container[str]) -> dict[str, LevelChange]:
    """Return by its id the change that each run begins, for the histories of the runs that are shown.

    A history is what `previous_id` leads through: the runs of one script and name stem that have steps.
    """
    found: dict[str, LevelChange] = {}
    for history in _list_histories(newest_first):
        if any(run.id in shown for run in history):
            found |= {history[change.at].id: change for change in _find_changes(history)}
    return found


def find_last_change(newest_first: Sequence[RunEntry], run_id: str) -> tuple[str, LevelChange] | None:
    """Return the change that a run is the first after, or the last one before it, with the id of the run that begins it."""
    for history in _list_histories(newest_first):
        place = next((at for at, run in enumerate(history) if run.id == run_id), None)
        if place is not None:
            changes = [change for change in _find_changes(history) if change.at <= place]
            return (history[changes[-1].at].id, changes[-1]) if changes else None
    return None


def _list_histories(newest_first: Sequence[RunEntry]) -> list[list[RunEntry]]:
    histories: dict[str, list[RunEntry]] = {}
    for run in reversed(newest_first):
        if run.headline.step_p50_ns:
            history = histories.pop(run.previous_id, []) if run.previous_id is not None else []
            history.append(run)
            histories[run.id] = history
    return list(histories.values())


def _find_changes(history: Sequence[RunEntry]) -> tuple[LevelChange, ...]:
    if len(history) < 2 * LEAST_SIDE:
        return ()
    return find_level_changes(tuple(run.headline.step_p50_ns or 0.0 for run in history))


@derived()
def find_level_changes(medians_ns: tuple[float, ...]) -> tuple[LevelChange, ...]:
    """Return the changes of level in the median steps of runs in the order of recording, the first first."""
    skipped = max(0, len(medians_ns) - MOST_RUNS)
    values = np.array(medians_ns[skipped:], dtype=np.float64)
    found = _part(values, 0)
    if measure_dependence(values, *(at for at, _ in found)) > MOST_RUN_DEPENDENCE:
        return ()
    ends = [0, *(at for at, _ in found), len(values)]
    return tuple(
        LevelChange(
            skipped + at,
            float(np.median(values[begin:at])),
            float(np.median(values[at:end])),
            at - begin,
            end - at,
            chance,
        )
        for (at, chance), begin, end in zip(found, ends, ends[2:], strict=False)
    )


def _part(values: Floats, begin: int) -> list[tuple[int, float]]:
    """Return where a stretch of runs parts, and by what chance, the first place first."""
    if len(values) < 2 * LEAST_SIDE or values.min() == values.max():
        return []
    at, score = part_ranks(rank_values(values))
    chance = find_chance(len(values), score)
    if chance > CHANCE or not beats_line(values, at):
        return []
    return [*_part(values[:at], begin), (begin + at, chance), *_part(values[at:], begin + at)]
