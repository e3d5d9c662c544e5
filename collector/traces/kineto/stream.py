"""Cut a trace into chunks at event boundaries and decode each chunk; memory stays that of one chunk.

Where an event ends cannot be seen in the bytes alone: `}, {` may stand in a name or in the arguments. So a boundary is
guessed from the right end of a block, and the decoder has the last word: a chunk that was cut in the wrong place does
not decode, and the next boundary to the left is tried. The decoder also says where the list of events ends, because
keys after it are usual.

May import `collector.traces.source`, `collector.schema.errors` and its neighbours `events` and `repair`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from collector.schema.errors import TraceError
from collector.traces.kineto.events import EVENTS, TIMES, Event, Times
from collector.traces.kineto.repair import repair_json
from collector.traces.source import Source

LIMIT_BYTES = 64 << 20
"""The most that a head, a tail or a single event may take."""

_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(
    rb'\}(?P<gap>\s*,\s*)(?=\{\s*"(?:ph|cat|name|args|pid|tid|ts|id|bp|s|dur|tts|tdur|sf|cname|scope|bind_id|id2)")'
)
_BYTE_OF_ERROR = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_TAIL_WINDOWS = (1 << 14, 1 << 18, LIMIT_BYTES)


@dataclass
class Chunk:
    """Some events, and the text that they were decoded from (a JSON list)."""

    events: list[Event]
    text: bytes

    @cached_property
    def exact(self) -> list[Times]:
        """The times of the events as the file spells them."""
        return TIMES.decode(self.text)


@dataclass
class Damage:
    """What was wrong with a file: repaired chunks, events that could not be read, the first fault, an early end."""

    repaired: int = 0
    lost: int = 0
    first_fault: str = ""
    cut_short: str = ""


@dataclass
class EventStream:
    """The chunks of a trace. `metadata` and `damage` are complete when all chunks have been taken."""

    source: Source
    metadata: dict[str, Any] = field(default_factory=dict)
    damage: Damage = field(default_factory=Damage)
    _offset: int = 0
    _bare_list: bool = False

    def open(self) -> Iterator[Chunk] | None:
        """Return the chunks, or None if the file is no trace. Raises TraceError for a file that is broken."""
        blocks = self.source.read_blocks()
        body = self._read_head(blocks)
        return None if body is None else self._read_chunks(body, blocks)

    def _read_head(self, blocks: Iterator[bytes]) -> bytes | None:
        text = b""
        for block in blocks:
            text += block
            start = text[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
            if start and start[:1] not in (b"{", b"["):
                return None
            if start[:1] == b"[":
                self._bare_list = True
                self._offset = text.index(b"[") + 1
                body = text[self._offset :]
                return body if body.lstrip()[:1] in (b"{", b"]", b"") else None
            for match in _LIST_START.finditer(text):
                if self._take_head(text[: match.start()]):
                    self._offset = match.end()
                    return text[match.end() :]
            if len(text) > LIMIT_BYTES:
                return None
        if not text.strip():
            raise TraceError(f"{self.source.path} is empty" + _because(self.source.truncated))
        return None

    def _take_head(self, head: bytes) -> bool:
        """Take the keys before the events. False if the match was not the key of the outermost object."""
        try:
            self.metadata.update(_decode_object(head.lstrip(b"\xef\xbb\xbf") + b'"traceEvents":null}'))
        except msgspec.DecodeError:
            return False
        self.metadata.pop("traceEvents", None)
        return True

    def _read_chunks(self, text: bytes, blocks: Iterator[bytes]) -> Iterator[Chunk]:
        for block in blocks:
            text += block
            chunk, used, ended = self._decode_front(text)
            if chunk is not None:
                yield chunk
            text = text[used:]
            self._offset += used
            if ended:
                self._take_tail(text, blocks)
                return
            if len(text) > LIMIT_BYTES:
                raise TraceError(
                    f"{self.source.path}: no event ends within {LIMIT_BYTES >> 20} MiB of byte {self._offset}"
                )
        yield from self._read_last(text)

    def _read_last(self, text: bytes) -> Iterator[Chunk]:
        """Read what is left at the end of the file: the last events and the keys after them, or a cut."""
        while text.strip():
            chunk, used, ended = self._decode_end(text)
            if chunk is not None:
                yield chunk
            text = text[used:]
            self._offset += used
            if ended:
                self._take_tail(text, iter(()))
                return
            if not used:
                break
        if not self._bare_list or text.strip() or self.source.truncated:
            self.damage.cut_short = self.source.truncated or "the list of events does not end"

    def _decode_front(self, text: bytes) -> tuple[Chunk | None, int, bool]:
        """Decode as many whole events as there are. Return them, the bytes used, and whether the list ended."""
        tries = 0
        for match in _find_boundaries(text):
            cut = match.start() + 1
            body = b"[" + text[:cut] + b"]"
            try:
                return Chunk(EVENTS.decode(body), body), match.end(), False
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                tries += 1
                end = _find_list_end(error)
                if end is not None:
                    return self._decode_until(text, end)
                if tries < 8 and _is_cut_fault(error, len(body)):
                    continue
                return self._salvage(text[:cut], error), match.end(), False
        return None, 0, False

    def _decode_end(self, text: bytes) -> tuple[Chunk | None, int, bool]:
        try:
            EVENTS.decode(b"[" + text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            end = _find_list_end(error)
            if end is not None:
                return self._decode_until(text, end)
        else:
            return self._decode_until(text, len(text))
        mended = repair_json(text)
        try:
            EVENTS.decode(b"[" + mended)
            end = len(mended)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            end = _find_list_end(error)
        if end is not None:
            self.damage.repaired += 1
            chunk, used, _ = self._decode_until(mended, end)
            # The text after the list was mended along with it; what is used must be counted in the file's own bytes.
            return chunk, len(text) - (len(mended) - used), True
        return self._decode_front(text)

    def _decode_until(self, text: bytes, end: int) -> tuple[Chunk | None, int, bool]:
        body = b"[" + text[:end]
        events = EVENTS.decode(body)
        return (Chunk(events, body) if events else None), end, True

    def _take_tail(self, text: bytes, blocks: Iterator[bytes]) -> None:
        for block in blocks:
            text += block
            if len(text) > LIMIT_BYTES:
                self.damage.cut_short = f"what follows the events is longer than {LIMIT_BYTES >> 20} MiB"
                return
        if self._bare_list or not text.strip():
            self.damage.cut_short = self.damage.cut_short or self.source.truncated
            return
        try:
            self.metadata.update(_decode_object(b'{"":0' + text))
        except msgspec.DecodeError:
            self.damage.cut_short = self.source.truncated or "what follows the events is not readable"
        self.metadata.pop("", None)

    def _salvage(self, text: bytes, error: Exception | None) -> Chunk | None:
        """Read a chunk that does not decode: mend it, or else keep the events of it that do."""
        at = _AT_BYTE.search(str(error))
        place = self._offset + (int(at.group(1)) - 1 if at else 0)
        self.damage.first_fault = self.damage.first_fault or f"byte {place}: {error}"
        mended = b"[" + repair_json(text) + b"]"
        try:
            events = EVENTS.decode(mended)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._salvage_events(mended[1:-1])
        self.damage.repaired += 1
        return Chunk(events, mended)

    def _salvage_events(self, text: bytes) -> Chunk | None:
        kept: list[bytes] = []
        start = 0
        cuts = [(m.start() + 1, m.end()) for m in _BOUNDARY.finditer(text)]
        for end, following in [*cuts, (len(text), len(text))]:
            piece = text[start:end]
            start = following
            try:
                EVENTS.decode(b"[" + piece + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.damage.lost += 1
                continue
            kept.append(piece)
        body = b"[" + b",".join(kept) + b"]"
        return Chunk(EVENTS.decode(body), body) if kept else None


def _find_boundaries(text: bytes) -> Iterator[re.Match[bytes]]:
    """Find what look like ends of events, from the right."""
    below = len(text)
    for window in _TAIL_WINDOWS:
        found = list(_BOUNDARY.finditer(text, max(0, len(text) - window)))
        yield from (match for match in reversed(found) if match.start() < below)
        if window >= len(text):
            return
        below = found[0].start() if found else below


def _find_list_end(error: Exception) -> int | None:
    """Return how many bytes of the text belong to the list, if the decoder complains of what follows it.

    The decoder counts from 1, and saw an opening bracket in front of the text.
    """
    match = _BYTE_OF_ERROR.search(str(error))
    return int(match.group(1)) - 2 if match else None


def _is_cut_fault(error: Exception, length: int) -> bool:
    at = _AT_BYTE.search(str(error))
    return "truncated" in str(error) or (at is not None and int(at.group(1)) >= length - 2)


def _decode_object(text: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = msgspec.json.decode(repair_json(text))
    if not isinstance(value, dict):
        raise msgspec.DecodeError("not an object")
    return value


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
