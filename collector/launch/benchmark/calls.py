"""The ranges of a run as a tree of calls, and which of its batches count.

A script without ranges of its own still has batches: its training steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from collector.format.run import RankRun
from collector.format.schema.errors import RunError


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a range. `path` is the names from the outermost on, without batch numbers; times are since the epoch."""

    name: str
    path: str
    start_ns: int
    duration_ns: int
    device_ns: int | None = None
    batch: int | None = None
    items: int | None = None
    failed: bool = False
    children: tuple[Call, ...] = ()

    @property
    def is_counted(self) -> bool:
        """Whether it has a part in means: it did not fail, and is not the batch that only says that the data has ended."""
        return not self.failed and not (self.batch is not None and self.items == 0)

    @property
    def batches(self) -> tuple[Call, ...]:
        return tuple(child for child in self.children if child.batch is not None)

    def walk(self) -> Iterator[Call]:
        """Yield this call and all inside of it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Calls:
    """The outermost calls of a run, and those batches that are left when the warm-up is dropped."""

    roots: tuple[Call, ...]
    kept: frozenset[Call]
    source: str
    warmup: int

    @property
    def batches(self) -> tuple[Call, ...]:
        """Every batch that counts, in order of time."""
        found = [call for root in self.roots for call in root.walk() if call.batch is not None and call.is_counted]
        return tuple(sorted(found, key=lambda call: call.start_ns))


def read_calls(rank: RankRun, warmup: int) -> Calls:
    """Read the ranges of a run, or where it has none its training steps. RunError if there is neither."""
    try:
        rows = rank.table("ranges").to_pylist()
    except RunError:
        rows = []
    roots, source = (build_calls(rows), "ranges") if rows else (_read_steps(rank), "steps")
    return Calls(roots, keep_batches(roots, warmup), source, warmup)


def build_calls(rows: list[dict[str, Any]]) -> tuple[Call, ...]:
    """Build the tree of the rows of `ranges`, each level in order of time."""
    inside: dict[tuple[Any, Any] | None, list[dict[str, Any]]] = {}
    known = {(row.get("process"), row["id"]) for row in rows}
    for row in sorted(rows, key=lambda row: (row["start_ns"], row["id"])):
        parent = (row.get("process"), row["parent"])
        inside.setdefault(parent if parent in known else None, []).append(row)

    def build(row: dict[str, Any]) -> Call:
        return Call(
            name=row["name"],
            path=row["path"],
            start_ns=row["start_ns"],
            duration_ns=row["duration_ns"],
            device_ns=row["device_ns"],
            batch=row["batch"],
            items=row["total_items"],
            failed=row["failed"],
            children=tuple(build(child) for child in inside.get((row.get("process"), row["id"]), ())),
        )

    return tuple(build(row) for row in inside.get(None, ()))


def keep_batches(roots: tuple[Call, ...], warmup: int) -> frozenset[Call]:
    """Return the batches that are left: batch i of n is kept iff i + 1 > w and i + 1 + w <= n."""
    by_path: dict[str, list[Call]] = {}
    for call in Calls(roots, frozenset(), "", warmup).batches:
        by_path.setdefault(call.path, []).append(call)
    return frozenset(
        call
        for calls in by_path.values()
        for index, call in enumerate(calls)
        if index + 1 > warmup and index + 1 + warmup <= len(calls)
    )


def _read_steps(rank: RankRun) -> tuple[Call, ...]:
    steps = rank.table("steps", ("kind", "step", "start_ns", "duration_ns", "samples")).to_pylist()
    train = [row for row in steps if row["kind"] == "train"]
    return tuple(
        Call("step", "step", row["start_ns"], row["duration_ns"], batch=row["step"] - 1, items=row["samples"])
        for row in train
    )
