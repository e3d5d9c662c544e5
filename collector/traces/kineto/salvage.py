"""Keep the events of a text that does not decode as a whole: each one is tried, and mended if need be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from collector.traces.kineto.events import EVENTS, UNREADABLE, Event
from collector.traces.kineto.items import split_items, split_pieces
from collector.traces.kineto.repair import repair_json

_AT_BYTE = re.compile(r" \(byte (\d+)\)")
_IN_FIELD = re.compile(r" - at `\$\[\d+\]\.?(.*)`")


@dataclass(frozen=True)
class Fault:
    """What is wrong and at which byte of the text, from 0."""

    place: int
    reason: str


@dataclass
class Salvage:
    """The events that were kept of a text, as text. `end` is the place behind the list, None if it goes on."""

    kept: list[bytes] = field(default_factory=list)
    lost: int = 0
    mended: bool = False
    fault: Fault | None = None
    end: int | None = None

    def decode(self) -> tuple[list[Event], bytes]:
        """Return the events, and the list that they were decoded from."""
        text = b"[" + b",".join(self.kept) + b"]"
        return EVENTS.decode(text), text

    def take(self, text: bytes, places: Iterable[tuple[int, int]], offset: int = 0) -> None:
        """Take the items at some places of a text that begins at `offset`."""
        in_rubble = False
        for start, end in places:
            item = text[start:end]
            error = find_error(item)
            if error is None and item.strip():
                self.kept.append(item)
                in_rubble = False
                continue
            self.fault = self.fault or locate(item, error, offset + start)
            if not item.strip():
                self.mended = True
                continue
            mended = repair_json(item)
            if find_error(mended) is None:
                self.kept.append(mended)
                self.mended, in_rubble = True, False
                continue
            # An event without its first bracket falls into many items, and is one loss all the same.
            is_rubble = not item.lstrip().startswith(b"{") and not _is_json(mended)
            self.lost += not (is_rubble and in_rubble)
            in_rubble = is_rubble


def salvage(text: bytes) -> Salvage:
    """Take whatever can be read of the items of a list, up to its end if that lies in the text."""
    found = Salvage()
    for start, end in split_pieces(text):
        piece = text[start:end]
        if find_error(piece) is None:
            found.kept.append(piece)
            continue
        items = split_items(piece)
        found.take(piece, items.places, start)
        if items.end is not None:
            found.end = start + items.end
            break
    return found


def find_fault(text: bytes) -> Fault | None:
    """Return the first fault among the items of a list, or of what looks like one."""
    for start, end in split_pieces(text):
        piece = text[start:end]
        if find_error(piece) is not None:
            found = Salvage()
            found.take(piece, split_items(piece).places, start)
            if found.fault is not None:
                return found.fault
    return None


def find_error(item: bytes) -> Exception | None:
    """Return why some items of a list cannot be read."""
    try:
        EVENTS.decode(b"[" + item + b"]")
    except UNREADABLE as error:
        return error
    return None


def locate(item: bytes, error: Exception | None, offset: int) -> Fault:
    """Tell where in a text an item is at fault that begins at `offset`. None stands for an item that is not there."""
    start = len(item) - len(item.lstrip())
    if error is None:
        return Fault(offset, "nothing stands behind a comma")
    if isinstance(error, UnicodeDecodeError):
        return Fault(offset + _find_no_text(item, start), "a byte that is no UTF-8")
    if isinstance(error, RecursionError):
        return Fault(offset + start, "values are nested too deeply")
    text = str(error)
    at = _AT_BYTE.search(text)
    # The decoder saw a bracket in front of the item.
    place = min(max(int(at.group(1)) - 1, start), len(item)) if at else start
    inner = _IN_FIELD.search(text)
    reason = _IN_FIELD.sub(f" in `{inner.group(1)}`" if inner and inner.group(1) else "", _AT_BYTE.sub("", text))
    return Fault(offset + place, reason)


def _find_no_text(item: bytes, start: int) -> int:
    try:
        item.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return start


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except RecursionError:
        return True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
