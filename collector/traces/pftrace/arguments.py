"""The arguments of an event as JSON, from its debug annotations."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collector.traces.pftrace.state import KEYS, TEXTS, Sequence, quote
from collector.traces.pftrace.wire import WireError, read_fields, to_double, to_signed

# Tags: eight times the number of a field, plus its type.
_NAME_IID, _NAME, _ENTRY, _ITEM = 8, 82, 90, 98
_BOOL, _UNSIGNED, _INTEGER, _DOUBLE, _POINTER, _TEXT, _TEXT_IID, _JSON = 16, 24, 32, 41, 56, 50, 136, 74
_MOST_DEPTH, _MOST_BRACKETS = 100, 500
_SPELLED, _LONGEST_SPELLED = 1 << 14, 256
_NO_KEY, _ALL = b'""', b'"metadata"'


def spell_arguments(annotations: Iterable[bytes], sequence: Sequence) -> list[bytes]:
    """Return `"key":value` for each annotation. Raises WireError for one that is damaged."""
    spelled = []
    for data in annotations:
        found = sequence.spelled.get(data)
        if found is None:
            found = _spread(*_spell(data, sequence, 0))
            if len(data) <= _LONGEST_SPELLED:
                if len(sequence.spelled) >= _SPELLED:
                    sequence.spelled.clear()
                sequence.spelled[data] = found
        if found:
            spelled.append(found)
    return spelled


def _spell(data: bytes, sequence: Sequence, depth: int) -> tuple[bytes, bytes]:
    """Return key and value of an annotation."""
    if depth > _MOST_DEPTH:
        raise WireError("its annotations are nested too deeply")
    key, value = _NO_KEY, b"null"
    entries: list[bytes] = []
    items: list[bytes] = []
    for tag, content in read_fields(data):
        if tag == _NAME:
            key = quote(content)
        elif tag == _NAME_IID:
            key = sequence.find(KEYS, content, _NO_KEY)
        elif tag == _ENTRY:
            entries.append(b":".join(_spell(content, sequence, depth + 1)))
        elif tag == _ITEM:
            items.append(_spell(content, sequence, depth + 1)[1])
        else:
            value = _spell_value(tag, content, sequence) or value
    if entries:
        return key, b"{" + b",".join(entries) + b"}"
    return key, b"[" + b",".join(items) + b"]" if items else value


def _spell_value(tag: int, content: int | bytes, sequence: Sequence) -> bytes | None:
    """Return a value as JSON; None for a field that is no value."""
    if isinstance(content, bytes):
        if tag == _TEXT:
            return quote(content)
        return _check_json(content) if tag == _JSON else None
    if tag == _INTEGER:
        return b"%d" % to_signed(content)
    if tag in (_UNSIGNED, _POINTER):
        return b"%d" % content
    if tag == _DOUBLE:
        return msgspec.json.encode(to_double(content))
    if tag == _BOOL:
        return b"true" if content else b"false"
    text: bytes | None = sequence.find(TEXTS, content, None) if tag == _TEXT_IID else None
    return text


def is_shallow(text: bytes) -> bool:
    """Return whether a text of JSON can be read: nesting takes stack, and a file may nest without end."""
    return text.count(b"[") + text.count(b"{") <= _MOST_BRACKETS


def _check_json(text: bytes) -> bytes:
    if is_shallow(text):
        try:
            return msgspec.json.encode(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return quote(text)


def _spread(key: bytes, value: bytes) -> bytes:
    """Return an argument, or all arguments of an annotation that holds them as one text, as Kineto writes them."""
    if key == _ALL and value[:1] == b'"':
        text = b"{" + msgspec.json.decode(value, type=str).encode() + b"}"
        if is_shallow(text):
            try:
                return msgspec.json.encode(msgspec.json.decode(text, type=dict[str, object]))[1:-1]
            except msgspec.DecodeError:
                pass
    return key + b":" + value
