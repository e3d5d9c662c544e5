"""Read the readable events of text that is not JSON: find its items, repair each, and keep the events that decode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from collector.traces.kineto.decode.events import EVENTS, UNREADABLE, Event

BOUNDARY = re.compile(
    rb'\}(?P<gap>\s*,\s*)(?=\{\s*"(?:ph|cat|name|args|pid|tid|ts|id|bp|s|dur|tts|tdur|sf|cname|scope|bind_id|id2)")'
)
"""A likely end of one event and begin of the next; the pattern may also occur in a name or in arguments."""

# A string that does not end reaches to the end of the text, so that no string is looked for twice.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_MARKS = re.compile(_STRING + rb"|[\[\]{},]", re.DOTALL)
_MOST_ITEMS = 1 << 17
_BEHIND_LIST = re.compile(rb'\s*(?:\Z|\}|,\s*(?:"|\}))')

# Control characters inside a string are not JSON; outside they are blanks anyway, so all of them become blanks.
_CONTROL_TO_BLANK = bytes(32 if code < 32 else code for code in range(256))
# A string is matched first, so that what looks like a fault inside of a name is left alone.
_TOKENS = re.compile(
    _STRING + rb"|(?P<number>[-+]?\b(?:NaN|nan|Infinity|infinity|inf|Inf)\b)"
    rb"|(?P<comma>,)(?=\s*[\]}])",
    re.DOTALL,
)
_BAD_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?P<bad>))')
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_AT_BYTE = re.compile(r" \(byte (\d+)\)")
_IN_FIELD = re.compile(r" - at `\$\[\d+\]\.?(.*)`")


@dataclass(frozen=True)
class Items:
    """The positions of the items of a list, including the blanks around each item. `end` is the position after the
    list, None if the list does not end.
    """

    places: tuple[tuple[int, int], ...]
    end: int | None


def split_pieces(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the positions of pieces between likely ends of events. It is fast, and a fault affects one piece only."""
    start = 0
    for match in BOUNDARY.finditer(text):
        yield start, match.start() + 1
        start = match.end()
    yield start, len(text)


def split_items(text: bytes) -> Items:
    """Return the positions of the items of a list, found by counting brackets; the last item may be incomplete.

    The list begins before the text. Of a text with an implausible number of items, the items beyond a limit are one
    item.
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


def repair_json(text: bytes) -> bytes:
    """Return the text with control characters, NaN, infinities, trailing commas, stray escapes and bytes repaired."""
    text = text.translate(_CONTROL_TO_BLANK)
    text = _TOKENS.sub(_mend_token, text)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode("utf-8")
    return text


def _mend_token(match: re.Match[bytes]) -> bytes:
    if match["number"] is not None:
        return b"null"
    if match["comma"] is not None:
        return b""
    token = match[0]
    if b"\\" not in token:
        return token
    token = _BAD_ESCAPE.sub(lambda found: b"\\\\" if found["bad"] is not None else found[0], token)
    return _SURROGATE.sub(b"\\\\ufffd", token)


@dataclass(frozen=True)
class Fault:
    """A fault, and its byte position in the text, from 0."""

    place: int
    reason: str


@dataclass
class Salvage:
    """The readable events of a text, each as JSON text. `lost` counts unreadable events, and `fault` is the first
    fault.

    `end` is the position after the list, None if the list goes on.
    """

    kept: list[bytes] = field(default_factory=list)
    lost: int = 0
    mended: bool = False
    fault: Fault | None = None
    end: int | None = None

    def decode(self) -> tuple[list[Event], bytes]:
        """Return the events, and the JSON list from which they were decoded."""
        text = b"[" + b",".join(self.kept) + b"]"
        return EVENTS.decode(text), text

    def take(self, text: bytes, places: Iterable[tuple[int, int]], offset: int = 0) -> None:
        """Read the items at the given positions of a text that begins at `offset`."""
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
    """Return the readable items of a text that lies inside a list, up to the end of the list if the text has it."""
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


def find_error(item: bytes) -> Exception | None:
    """Return the exception that decoding some items of a list raises, None if they can be decoded."""
    try:
        EVENTS.decode(b"[" + item + b"]")
    except UNREADABLE as error:
        return error
    return None


def locate(item: bytes, error: Exception | None, offset: int) -> Fault:
    """Return the fault of an item that begins at `offset`. The error None means that the item is missing."""
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
