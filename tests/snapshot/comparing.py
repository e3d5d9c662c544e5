"""Two snapshots against each other: the places that differ, those alike in many runs as one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path

from tests.snapshot.plain import Plain

LONGEST = 160
"""Longer values are cut."""
SHOWN = 3
"""Of a change in many places so many are shown."""
_NOTHING = "–"
_NUMBER = re.compile(r"\b[0-9a-f]{16,64}\b|\d[\d.,]*")
"""Digests, too."""


@dataclass(frozen=True)
class Difference:
    """One value of one run that is another, came, or went."""

    run: str
    path: tuple[str, ...]
    old: str
    new: str


@dataclass
class Change:
    """Differences of one path but for numbers in it, and of one wording but for numbers in it."""

    path: str
    found: list[Difference] = field(default_factory=list)

    @property
    def runs(self) -> list[str]:
        return sorted({one.run for one in self.found})

    def fits(self, pattern: str) -> bool:
        """Say whether a pattern fits the path, or the path with what stands there in each of its places."""
        lines = (f"{self.path}: {one.old} -> {one.new}" for one in self.found)
        return fnmatchcase(self.path, pattern) or all(fnmatchcase(line, pattern) for line in lines)


def find_changes(a: Path, b: Path) -> list[Change]:
    """Return what differs between the snapshots in two folders, in the order of paths."""
    changes: dict[tuple[str, str, str], Change] = {}
    for name in sorted({path.stem for folder in (a, b) for path in folder.glob("*.json")}):
        for one in _compare(name, (), _read(a / f"{name}.json"), _read(b / f"{name}.json")):
            path = "/".join(_NUMBER.sub("*", part) for part in one.path)
            key = path, _mask(one.old), _mask(one.new)
            changes.setdefault(key, Change(path)).found.append(one)
    return [changes[key] for key in sorted(changes)]


def read_expectations(text: str) -> dict[str, str]:
    """Return the reasons by pattern. ValueError for a line without a reason."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        pattern, _, reason = (part.strip() for part in line.rpartition("#"))
        if not pattern or not reason:
            raise ValueError(f"{line!r} is no pattern with # and a reason behind it")
        found[pattern] = reason
    return found


def render_change(change: Change) -> str:
    """Return a line for a change, and some of its places below it."""
    runs = change.runs
    more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    values = list(dict.fromkeys(f"{one.old} -> {one.new}" for one in change.found))
    shown = values[:SHOWN] + ([f"… {len(values) - SHOWN} more"] if len(values) > SHOWN else [])
    where = f"{len(change.found)} in {len(runs)} runs: {', '.join(runs[:SHOWN])}{more}"
    return "\n  ".join((f"{change.path} ({where})", *shown))


def _read(path: Path) -> Plain:
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _compare(run: str, path: tuple[str, ...], old: Plain, new: Plain) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            where = (*path, key)
            if key in old and key in new:
                yield from _compare(run, where, old[key], new[key])
            else:
                yield Difference(run, where, *(_show(side[key]) if key in side else _NOTHING for side in (old, new)))
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(run, path, old, new)
    else:
        yield from _compare_values(run, path, json.dumps(old, ensure_ascii=False), json.dumps(new, ensure_ascii=False))


def _compare_values(run: str, path: tuple[str, ...], old: str, new: str) -> Iterator[Difference]:
    """Compare values as JSON, in which not-a-number equals itself; of long ones the place is shown where they part."""
    if old != new:
        same = next((i for i, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
        begin = max(same - LONGEST // 2, 0) if max(len(old), len(new)) > LONGEST else 0
        yield Difference(run, path, *(_cut(("…" if begin else "") + text[begin:]) for text in (old, new)))


def _compare_lists(run: str, path: tuple[str, ...], old: list[Plain], new: list[Plain]) -> Iterator[Difference]:
    """Compare entry by entry; where lists are not as long as each other, what came and what went is found first."""
    if len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from _compare(run, (*path, str(number)), *pair)
        return
    before, after = ([json.dumps(entry, sort_keys=True) for entry in side] for side in (old, new))
    for kind, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            for place in range(max(j - i, m - k)):
                sides = ((old, i + place, j), (new, k + place, m))
                shown = (_show(side[at]) if at < end else _NOTHING for side, at, end in sides)
                yield Difference(run, (*path, str(i + place)), *shown)


def _show(value: Plain) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _mask(text: str) -> str:
    return _NUMBER.sub("#", text)
