"""Make rows of the table `collectives` (all-reduce and the like) for calls of the training thread outside of detailed
windows.

In long runs, rows are made for some steps only. Every rank picks the same steps, so that ranks can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collector.hangs.positions import IN_BACKWARD, MOST_GROUPS, is_of_all
from collector.notes import read_notes
from collector.ring.clock import Clock
from collector.sidecar.steps.calls import Call
from collector.sidecar.steps.row_keeping import Done

THIN_FROM = 50_000
"""Number of calls after which only every 16th step is listed; after 16 times as many calls, every 256th, and so on."""
_MOST_WAITING = 512
_UNKNOWN = {"name": "(unknown)", "group": ""}
"""What is returned for a call whose kind is not in the notes."""


class CollectiveRows:
    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        self._folder = rank_folder
        self._clock = clock
        self._kinds: list[dict[str, Any]] = []
        self._indices: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        """Number of ended calls by group, without the kinds of calls that ranks of the group make unequally often."""
        self._waiting: list[tuple[Call, dict[str, Any]]] = []
        self._usual: list[Call] = []

    def add(self, done: Done) -> None:
        """Add the calls of a row of `steps`. Calls in a detailed window are only counted: its trace lists them."""
        if done.kind == "train":
            self._usual = list(done.row.calls)
        listed = is_listed(done.step, sum(self._indices.values())) and not done.row.detailed
        for call in done.row.calls:
            kind = self._find_kind(call.what)
            group = str(kind.get("group", ""))
            index = self._indices[group] = self._indices.get(group, 0) + 1
            if is_of_all(str(kind["name"])):
                self._ended[group] = self._ended.get(group, 0) + 1
            if listed:
                row = {"step": done.step if done.kind == "train" else None, "group": group, "index": index - 1}
                self._waiting.append((call, {**kind, **row}))

    def take(self) -> list[dict[str, Any]]:
        """Take out the rows of calls that have ended, and of open calls once 512 newer ones are open."""
        over = [entry for entry in self._waiting if not entry[0].is_open]
        waiting = [entry for entry in self._waiting if entry[0].is_open]
        self._waiting = waiting[-_MOST_WAITING:]
        return [self._describe(*entry) for entry in (*over, *waiting[:-_MOST_WAITING])]

    def finish(self) -> None:
        for call, _ in self._waiting:
            call.is_open = False

    def describe_next(self, ended: int, begun: Call | None) -> dict[str, Any]:
        """Return name, bytes and group of `begun`, else of call number `ended` of the last step; {} if unknown."""
        call = begun or (self._usual[ended] if ended < len(self._usual) else None)
        if call is None:
            return {}
        kind = self._find_kind(call.what)
        group = str(kind.get("group", "")) if is_of_all(str(kind["name"])) else ""
        return {"name": kind["name"], "bytes": call.bytes, "is_begun": begun is not None, "group": group}

    def describe_groups(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Return each group with its ended collectives. `calls` are those of the open row of `steps`."""
        if not self._kinds:
            self._find_kind(0)
        kinds = [self._find_kind(call.what) for call in calls]
        open_row = Counter(
            str(kind.get("group", ""))
            for call, kind in zip(calls, kinds, strict=True)
            if is_of_all(str(kind["name"])) and not call.is_open
        )
        told: dict[str, dict[str, Any]] = {}
        for kind in [*self._kinds, *kinds]:
            name = str(kind.get("group", ""))
            if name not in told and len(told) < MOST_GROUPS:
                about = {key: kind[key] for key in ("label", "ranks", "is_whole") if kind.get(key)}
                told[name] = {"name": name, **about, "ended": self._ended.get(name, 0) + open_row[name]}
        return list(told.values())

    @property
    def backward_group(self) -> str | None:
        """The process group in which backwards reduce gradients without a visible call, None if there is none."""
        return next((str(kind.get("group", "")) for kind in self._kinds if IN_BACKWARD in str(kind["name"])), None)

    def count(self) -> int:
        return sum(self._indices.values())

    def checkpoint(self) -> dict[str, Any]:
        """Return the numbers of calls and of ended calls by group. Open calls are lost in a takeover."""
        return {"collectives": dict(self._indices), "ended_calls": dict(self._ended)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._indices = dict(state["collectives"])
        self._ended = dict(state["ended_calls"])

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
    """Return whether the calls of training step `step` get rows. `calls` is the number of calls before the step."""
    every, bound = 1, THIN_FROM
    while calls >= bound:
        every, bound = 16 * every, 16 * bound
    return step % every == 0
