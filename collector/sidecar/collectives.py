"""Rows of `collectives` without a detailed window, from the calls that the training thread made.

Of long runs only some steps are listed, the same ones on every rank: their calls are what the ranks have in common.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.notes import read_notes
from collector.ring.clock import Clock
from collector.sidecar.calls import Call
from collector.sidecar.row_keeping import Done

THIN_FROM = 50_000
"""After so many calls every 16th step is listed, after 16 times as many every 256th, and so on."""
_MOST_WAITING = 512
_UNKNOWN = {"name": "(unknown)", "group": ""}


class CollectiveRows:
    """Takes the rows of `steps` as they are done."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        self._folder = rank_folder
        self._clock = clock
        self._kinds: list[dict[str, Any]] = []
        self._indices: dict[str, int] = {}
        self._waiting: list[tuple[Call, dict[str, Any]]] = []
        self._usual: list[Call] = []

    def add(self, done: Done) -> None:
        """Take in the calls that began in a row; those in a detailed window are listed from its trace."""
        if done.kind == "train":
            self._usual = list(done.row.calls)
        listed = is_listed(done.step, sum(self._indices.values())) and not done.row.detailed
        for call in done.row.calls:
            kind = self._find_kind(call.what)
            group = str(kind.get("group", ""))
            index = self._indices[group] = self._indices.get(group, 0) + 1
            if listed:
                row = {"step": done.step if done.kind == "train" else None, "group": group, "index": index - 1}
                self._waiting.append((call, {**kind, **row}))

    def take(self) -> list[dict[str, Any]]:
        """Return the rows of the calls that are over; one that nobody has waited for yet comes later."""
        over = [entry for entry in self._waiting if not entry[0].is_open]
        waiting = [entry for entry in self._waiting if entry[0].is_open]
        self._waiting = waiting[-_MOST_WAITING:]
        return [self._describe(*entry) for entry in (*over, *waiting[:-_MOST_WAITING])]

    def finish(self) -> None:
        """Nobody will wait for the others any more."""
        for call, _ in self._waiting:
            call.is_open = False

    def describe_next(self, ended: int, begun: Call | None) -> dict[str, Any]:
        """Return the call that was begun, else what the step before called after so many: the next is likely the same."""
        call = begun or (self._usual[ended] if ended < len(self._usual) else None)
        if call is None:
            return {}
        return {"name": self._find_kind(call.what)["name"], "bytes": call.bytes, "is_begun": begun is not None}

    def count(self) -> int:
        """Return how many calls the rows so far have ended."""
        return sum(self._indices.values())

    def checkpoint(self) -> dict[str, int]:
        """Return the calls so far by group. Those that wait are lost to a process that takes over."""
        return dict(self._indices)

    def restore(self, state: dict[str, int]) -> None:
        self._indices = dict(state)

    def _describe(self, call: Call, row: dict[str, Any]) -> dict[str, Any]:
        times = {"start_ns": self._clock.to_run(call.start), "duration_ns": max(call.end - call.start, 0)}
        return {**row, **times, "bytes": call.bytes, "on_device": False, "held_ns": call.held}

    def _find_kind(self, what: int) -> dict[str, Any]:
        if what >= len(self._kinds):
            try:
                self._kinds = read_notes(self._folder).collectives
            except (OSError, ValueError):
                return _UNKNOWN
        return self._kinds[what] if what < len(self._kinds) else _UNKNOWN


def is_listed(step: int, calls: int) -> bool:
    """Say whether the calls of a step are listed, after so many calls before it."""
    every, bound = 1, THIN_FROM
    while calls >= bound:
        every, bound = 16 * every, 16 * bound
    return step % every == 0
