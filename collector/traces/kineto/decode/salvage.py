"""Read what can be read of text that is not JSON: find its items, mend each, and keep the events that decode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from collector.traces.kineto.decode.events import EVENTS, UNREADABLE, Event

BOUNDARY = re.compile(
    rb'\}(?P<gap>\s*,\s*)(?=\{\s*"(?:ph|cat|name|args|pid|tid|ts|id|bp|s|dur|tts|tdur|sf|cname|scope|bind_id|id2)")'
)
"""What looks like the end of one event and the begin of the next; it may stand in a name or in arguments too."""

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


def repair_json(text: bytes) -> bytes:
    """Return the text with control characters, NaN, infinities, trailing commas, stray escapes and bytes mended."""
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
    token = _BAD_ESCAPE.sub(_mend_escape, token)
    return _SURROGATE.sub(b"\\\\ufffd", token)


def _mend_escape(match: re.Match[bytes]) -> bytes:
    return b"\\\\" if match["bad"] is not None else match[0]


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
