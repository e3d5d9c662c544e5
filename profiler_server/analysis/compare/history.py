"""Where in the history of a script its runs became slower or faster for good.

One run after another tells little: runs of one program differ. A level that four runs or more keep to tells more, if
those before kept to another. Each change found parts the history, and both parts are looked at again.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats
from profiler_server.analysis.rank_split import (
    LEAST_SIDE,
    beats_line,
    find_chance,
    measure_dependence,
    part_ranks,
    rank_values,
)
from profiler_server.derive.derived import derived
from profiler_server.store.headline import RunEntry

CHANCE = 0.01
"""Of so many histories without a change, one is said to have one, if runs do not depend on the runs before them."""
MOST_DEPENDENCE = 0.4
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
    if measure_dependence(values, *(at for at, _ in found)) > MOST_DEPENDENCE:
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
