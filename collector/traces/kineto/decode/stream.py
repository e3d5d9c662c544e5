"""Cut a trace into chunks at event boundaries and decode each chunk. Memory is limited to one chunk.

The bytes alone do not show the end of an event: `}, {` may occur in a name or in the arguments. So a boundary is
guessed from the right end of a block, and the decoder decides. A chunk that is cut at a wrong position does not decode;
then the next boundary to the left is tried. The decoder also finds the end of the list of events, because files usually
have keys after the list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from collector.format.schema.errors import TraceError
from collector.traces.kineto.decode.digest import Digest
from collector.traces.kineto.decode.events import EVENTS, UNREADABLE, Chunk
from collector.traces.source import Source

T = TypeVar("T")
BOUNDARY = re.compile(
    rb'\}(?P<gap>\s*,\s*)(?=\{\s*"(?:ph|cat|name|args|pid|tid|ts|id|bp|s|dur|tts|tdur|sf|cname|scope|bind_id|id2)")'
)
"""A likely end of one event and begin of the next; the pattern may also occur in arguments."""
LIMIT_BYTES = 64 << 20
"""The greatest size of a head, a tail or a single event."""

_MOST_KEYS = 64
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BYTE_OF_ERROR = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r" \(byte (\d+)\)")
_IN_FIELD = re.compile(r" - at `\$\[\d+\]\.?(.*)`")
_ITEM_OF_ERROR = re.compile(r"`\$\[(\d+)\]")
SPARE_FRAMES = 150
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_TAIL_WINDOWS = (1 << 14, 1 << 18, LIMIT_BYTES)
_MOST_CUTS, _MOST_LAST_CUTS = 8, 256
"""The likely ends of events that are tried for one text, and for the last text of a file."""
_LONGEST_LITERAL = len("false]")

_Decoded = tuple[Chunk | None, int, bool]
"""Events, the number of bytes used, and whether the list has ended."""
Advance = Callable[[int], None]
"""Called with the number of bytes of the text that have been used."""
Digests = Generator[Digest, None, tuple[bytes, Iterator[bytes]]]
"""The digests of some chunks. The generator returns the text and the blocks left for the reader."""
ReadAhead = Callable[[bytes, Iterator[bytes], Advance], Digests]


@dataclass
class EventStream:
    """The chunks of a trace. `metadata` and `cut_short` are complete after the last chunk.

    `ahead` lets other processes digest the start of the file. The stream then yields digests in place of chunks.
    """

    source: Source
    ahead: ReadAhead | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    cut_short: str = ""
    """Why the file ends before its trace does, empty for a whole file."""
    offset: int = 0
    """The number of bytes of the unpacked file that have been read into chunks."""
    _bare_list: bool = False

    def open(self) -> Generator[Chunk | Digest, None, None] | None:
        """Return an iterator over the chunks, or None if the file is no trace. Raises TraceError for a broken file."""
        blocks = self.source.read_blocks()
        body = self._read_head(blocks)
        return None if body is None else self._read_chunks(body, blocks)

    def _read_head(self, blocks: Iterator[bytes]) -> bytes | None:
        text = b""
        tries = 0
        for block in blocks:
            text += block
            start = text[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
            if start and start[:1] not in (b"{", b"["):
                return None
            if start[:1] == b"[":
                self._bare_list = True
                self.offset = text.index(b"[") + 1
                body = text[self.offset :]
                return body if body.lstrip()[:1] in (b"{", b"]", b"") else None
            for match in _LIST_START.finditer(text):
                if self._take_head(text[: match.start()]):
                    self.offset = match.end()
                    return text[match.end() :]
                tries += 1
                if tries > _MOST_KEYS:
                    return None
            if len(text) > LIMIT_BYTES:
                return None
        if not text.strip():
            why = f" ({self.source.truncated})" if self.source.truncated else ""
            raise TraceError(f"{self.source.path} is empty{why}")
        return None

    def _take_head(self, head: bytes) -> bool:
        """Read the keys before the events; False if `traceEvents` is no key of the outermost object there."""
        try:
            self.metadata.update(_decode_object(head.lstrip(b"\xef\xbb\xbf") + b'"traceEvents":null}'))
        except (ValueError, RecursionError):
            return False
        self.metadata.pop("traceEvents", None)
        return True

    def _read_chunks(self, text: bytes, blocks: Iterator[bytes]) -> Generator[Chunk | Digest, None, None]:
        if self.ahead is not None:
            text, blocks = yield from self.ahead(text, blocks, self._advance)
        while (block := next(blocks, None)) is not None or text.strip():
            text += block or b""
            if block is None:  # after a loss of power, a file may end in zeros
                text = text.rstrip(b"\0")
            chunk, used, ended = descend(partial(self._decode, is_last=block is None), text)
            if chunk is not None:
                yield chunk
            text = text[used:]
            self.offset += used
            if ended:
                self._take_tail(text, blocks)
                return
            if block is None and not used:
                break
            if len(text) > LIMIT_BYTES:
                raise TraceError(
                    f"{self.source.path}: no event ends within {LIMIT_BYTES >> 20} MiB of byte {self.offset}"
                )
        if not self._bare_list or text.strip() or self.source.truncated:
            self.cut_short = self.source.truncated or "the list of events does not end"

    def _advance(self, used: int) -> None:
        self.offset += used

    def _decode(self, text: bytes, is_last: bool = False) -> _Decoded:
        """Return the whole events in the text, the number of bytes that they take, and whether the list of events has
        ended.

        The last text of a file may be cut: the incomplete event is dropped. Raises TraceError for any other fault."""
        cuts = ((match.start() + 1, match.end(), b"]") for match in find_boundaries(text))
        last = text.rfind(b"}") + 1
        rest = text[last:].lstrip(b", \t\r\n")
        ends = [(len(text), len(text), b""), (last, len(text) - len(rest), b"]")] if is_last else []
        for cut, end, close in islice(chain(ends, cuts), _MOST_LAST_CUTS if is_last else _MOST_CUTS):
            body = b"".join((b"[", memoryview(text)[:cut], close))  # a copy, not three
            try:
                events = EVENTS.decode(body)
                return (Chunk(events, body) if events else None), end, not close
            except UNREADABLE as error:
                if match := _BYTE_OF_ERROR.search(str(error)):
                    # The place of text after the list counts from 1, and includes a bracket that was put before it.
                    return self._decode_until(text, int(match[1]) - 2)
                if not _is_cut_fault(error, len(body) - (_LONGEST_LITERAL if close else 0)):
                    raise self._refuse(body, error) from None
        return None, 0, False

    def _decode_until(self, text: bytes, end: int) -> _Decoded:
        body = b"[" + text[:end]
        try:
            events = EVENTS.decode(body)
        except RecursionError as error:
            # A text that could just be decoded one frame further up is nested too deeply here.
            raise self._refuse(body, error) from None
        return (Chunk(events, body) if events else None), end, True

    def _refuse(self, body: bytes, error: Exception) -> TraceError:
        """Return the exception for a fault in a chunk. `body` begins with a bracket that is not in the file."""
        place = self.offset + find_fault(body, error) - 1
        reason = _IN_FIELD.sub(r" in `\1`", _AT_BYTE.sub("", str(error))).strip()
        if isinstance(error, RecursionError):
            reason = "from here on, values are nested too deeply"
        return TraceError(
            f"{self.source.path} is broken at byte {place}: {reason}; export the trace again, or mend the file there"
        )

    def _take_tail(self, text: bytes, blocks: Iterator[bytes]) -> None:
        for block in blocks:
            text += block
            if len(text) > LIMIT_BYTES:
                self.cut_short = f"what follows the events is longer than {LIMIT_BYTES >> 20} MiB"
                return
        if self._bare_list or not text.strip():
            self.cut_short = self.cut_short or self.source.truncated
            return
        try:
            self.metadata.update(_decode_object(b'{"":0' + text))
        except (ValueError, RecursionError):
            self.cut_short = self.source.truncated or "what follows the events is not readable"
        self.metadata.pop("", None)


def find_fault(body: bytes, error: Exception) -> int:
    """Return the position of a fault in a list of events; that of the first event if `error` has no position."""
    if isinstance(error, UnicodeDecodeError):
        return _find_no_text(body)
    if match := _AT_BYTE.search(str(error)):
        return min(int(match[1]), len(body) - 1)
    position = 1
    if match := _ITEM_OF_ERROR.search(str(error)):
        with suppress(*UNREADABLE, IndexError):
            items = _split_items(body)
            for item in items[: int(match[1])]:
                position = body.index(item, position) + len(item)
            return body.index(items[int(match[1])], position)
    return position


def _split_items(body: bytes) -> list[msgspec.Raw]:
    """Return the items of a list as text; further keys may follow the list."""
    try:
        return _ITEMS.decode(body)
    except msgspec.DecodeError as error:
        match = _BYTE_OF_ERROR.search(str(error))
        return _ITEMS.decode(body[: int(match[1]) - 1]) if match else []


def _find_no_text(body: bytes) -> int:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 1


def descend(decode: Callable[[bytes], T], text: bytes, frames: int = SPARE_FRAMES) -> T:
    """Call `decode(text)` from `frames` stack frames further down, and return its result.

    The depth of the stack limits the nesting of decoded values. With spare frames, a value that is nested too deeply
    for later code already fails here, as a fault of the file.
    """
    return descend(decode, text, frames - 1) if frames else decode(text)


def find_boundaries(text: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the likely ends of events in a text, the rightmost first."""
    below = len(text)
    for window in _TAIL_WINDOWS:
        found = list(BOUNDARY.finditer(text, max(0, len(text) - window)))
        yield from (match for match in reversed(found) if match.start() < below)
        if window >= len(text):
            return
        below = found[0].start() if found else below


def _is_cut_fault(error: Exception, end: int) -> bool:
    at = _AT_BYTE.search(str(error))
    return "truncated" in str(error) or (at is not None and int(at.group(1)) >= end)


def _decode_object(text: bytes) -> dict[str, Any]:
    """Decode an object of metadata. Scripts add to it, and PyTorch does not escape control characters in these additions."""
    value = json.loads(text, strict=False, parse_constant=lambda _: None)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
