"""Batches that the training process made itself and did not time: their stages, from how long their fetch took.

There, the clocks would cost more than a small batch does, so only some batches are timed. The time of the others is
divided as theirs was, without the part of a fetch that does not make the batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.ring.stage_log import Batch

REPLICA = -1
_MOST_OPEN = 4096
_COLUMNS = ("loader", "epoch", "batch", "start_ns", "duration_ns")
Key = tuple[int, int, int]
Ints = npt.NDArray[np.int64]


@dataclass
class _Division:
    """What the timed batches of one loader took. `work_ns` of `fetch_ns` was the making of the batch."""

    read_ns: int = 0
    collate_ns: int = 0
    parts_ns: dict[str, int] = field(default_factory=dict)
    items: int = 0
    work_ns: int = 0
    fetch_ns: int = 0

    def spread(self, fetch_ns: Ints) -> tuple[list[tuple[str, str | None]], Ints]:
        """Return the stages, and what each took of each of these fetches: an array of (fetches, stages)."""
        stages = [("read", None), *(("transform", name) for name in self.parts_ns), ("collate", None)]
        sums = np.array([self.read_ns, *self.parts_ns.values(), self.collate_ns], np.float64)
        share = min(self.work_ns / self.fetch_ns, 1.0) if self.fetch_ns else 1.0
        whole = sums.sum()
        taken = np.outer(fetch_ns * share, sums / whole if whole else np.eye(1, len(sums))[0])
        return stages, taken.astype(np.int64)


class BatchesHere:
    """`learn` from the batches that were timed, `divide` the fetches of the others."""

    def __init__(self) -> None:
        self._divisions: dict[int, _Division] = {}
        # Batches that have rows already, whose fetch has not been seen yet.
        self._written: OrderedDict[Key, int] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        return not self._divisions

    def learn(self, batch: Batch, parts: Iterable[tuple[str, int]]) -> None:
        """Take in a batch that has rows of its own."""
        self._written[batch[:3]] = batch.done_ns - batch.picked_ns
        if len(self._written) > _MOST_OPEN:
            self._written.popitem(last=False)
        if batch.timed:
            division = self._divisions.setdefault(batch.loader, _Division())
            division.read_ns += batch.read_ns
            division.collate_ns += batch.collate_ns
            division.items = batch.items
            for name, part_ns in parts:
                division.parts_ns[name] = division.parts_ns.get(name, 0) + part_ns

    def divide(self, fetches: pa.Table) -> list[dict[str, Any]]:
        """Return columns of `stages`, of one loader each, for those fetches whose batch was not timed."""
        loaders, epochs, batches, starts, durations = (fetches[name].to_numpy() for name in _COLUMNS)
        samples = fetches["samples"].fill_null(0).to_numpy()
        keys = zip(loaders.tolist(), epochs.tolist(), batches.tolist(), durations.tolist(), strict=True)
        rest = np.array([not self._is_written(key, took_ns) for *key, took_ns in keys], bool)
        made = []
        for loader, division in self._divisions.items():
            chosen = np.flatnonzero(rest & (loaders == loader))
            if len(chosen):
                items = np.where(samples[chosen] > 0, samples[chosen], division.items)
                place = {"loader": loaders[chosen], "epoch": epochs[chosen], "batch": batches[chosen], "items": items}
                made.append(_lay_out(division, place, starts[chosen], durations[chosen]))
        return made

    def checkpoint(self) -> dict[str, Any]:
        divisions = {str(loader): vars(division) for loader, division in self._divisions.items()}
        return {"divisions": divisions, "written": [[*key, took_ns] for key, took_ns in self._written.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        self._divisions = {int(loader): _Division(**saved) for loader, saved in state["divisions"].items()}
        self._written = OrderedDict(((int(a), int(b), int(c)), took_ns) for a, b, c, took_ns in state["written"])

    def _is_written(self, key: list[int], fetch_ns: int) -> bool:
        work_ns = self._written.pop((key[0], key[1], key[2]), None)
        if work_ns is None:
            return False
        division = self._divisions.get(key[0])
        if division is not None:
            division.work_ns += work_ns
            division.fetch_ns += fetch_ns
        return True


def _lay_out(division: _Division, place: dict[str, Ints], starts: Ints, durations: Ints) -> dict[str, Any]:
    """Lay the stages of each batch end to end, up to the end of its fetch."""
    stages, taken = division.spread(durations)
    count = len(stages)
    begins = (starts + durations - taken.sum(1))[:, None] + np.cumsum(taken, 1) - taken
    rows = len(starts)
    return {
        "stage": [stage for stage, _ in stages] * rows,
        "detail": [detail for _, detail in stages] * rows,
        "replica": [REPLICA] * (rows * count),
        "kind": ["work"] * (rows * count),
        "start_ns": begins.ravel(),
        "duration_ns": taken.ravel(),
        **{name: np.repeat(values, count) for name, values in place.items()},
    }
