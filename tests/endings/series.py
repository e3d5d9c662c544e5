"""A series of trials of one cell, bare and recorded by turns; a selection of cells that fits a time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from tests.endings.cells import Cell, Door
from tests.endings.comparison import Limits, Result, compare, has_unseen
from tests.endings.trial import Trial, run_trial

MORE_BARE = 3
"""So many more bare trials are made where a recorded one shows what no bare one has shown."""


def run_cell(cell: Cell, times: int, limit_s: float = 60.0, limits: Limits | None = None) -> Result:
    bare: list[Trial] = []
    recorded: list[Trial] = []
    for number in range(times):
        turns: tuple[Door, Door] = ("bare", cell.door) if number % 2 == 0 else (cell.door, "bare")
        for door in turns:
            (bare if door == "bare" else recorded).append(run_trial(cell, door, limit_s))
    for _ in range(MORE_BARE):
        if not has_unseen(cell, bare, recorded):
            break
        bare.append(run_trial(cell, "bare", limit_s))
    return compare(cell, bare, recorded, limits)


def run_cells(cells: Sequence[Cell], times: int, budget_s: float, seed: int, limit_s: float) -> Iterator[Result]:
    """Yield results; with a budget, of cells in an order that the seed gives, until the time is over."""
    chosen, until_s = list(cells), time.monotonic() + budget_s
    if budget_s < float("inf"):
        random.Random(seed).shuffle(chosen)
    for cell in chosen:
        if time.monotonic() > until_s:
            return
        yield run_cell(cell, times, limit_s)
