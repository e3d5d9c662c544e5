"""Find where the items of a list begin and end in text that may not be JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BOUNDARY = re.compile(
    rb'\}(?P<gap>\s*,\s*)(?=\{\s*"(?:ph|cat|name|args|pid|tid|ts|id|bp|s|dur|tts|tdur|sf|cname|scope|bind_id|id2)")'
)
"""What looks like the end of one event and the begin of the next; it may stand in a name or in arguments too."""

# A string that does not end reaches to the end of the text, so that no string is looked for twice.
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
_MOST_ITEMS = 1 << 17
_BEHIND_LIST = re.compile(rb'\s*(?:\Z|\}|,\s*(?:"|\}))')


@dataclass(frozen=True)
class Items:
    """Where the items stand, blanks around them included. `end` is the place behind the list, None if it does not end."""

    places: tuple[tuple[int, int], ...]
    end: int | None


def split_pieces(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the places between what look like ends of events: fast, and a fault does not reach beyond its piece."""
    start = 0
    for match in BOUNDARY.finditer(text):
        yield start, match.start() + 1
        start = match.end()
    yield start, len(text)


def split_items(text: bytes) -> Items:
    """Find the items of a list that begins before the text, by counting brackets; the last one may be incomplete.

    Text with more items than anybody writes is cut into that many, the last of which is the rest.
    """
    places: list[tuple[int, int]] = []
    start = depth = 0
    for match in _MARKS.finditer(text):
        mark = match[0]
        if mark in (b"{", b"["):
            depth += 1
        elif depth and mark in (b"}", b"]"):
            depth -= 1
        elif not depth and mark == b",":
            places.append((start, match.start()))
            start = match.end()
            if len(places) == _MOST_ITEMS:
                break
        elif not depth and mark == b"]" and _BEHIND_LIST.match(text, match.end()):
            return Items((*places, (start, match.start())), match.end())
    return Items((*places, (start, len(text))), None)
