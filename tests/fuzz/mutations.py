"""Faults for any kind of input: in the structure of JSON, in its text, and in bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

_LONG = "long " * 20_000
ODD_VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x", True, False, -1, 0, 1, 1e308, -1e308, 0.1, -0.0, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63,
    1 << 64, -(1 << 63), -(1 << 63) - 1, 10**40, 1e18, 1_700_000_000_000_000, "0x7", "-5", "9" * 40, "\x00", "\ud800",
    "a\udfffb", "\u2028", "\u202e", "<script>alert(1)</script>", "{{ 7 * 7 }}", "%s%n", "../../etc/passwd", "NaN", "1e400",
    float("nan"), float("inf"), float("-inf"), [[1]] * 3, {"a": {"b": []}}, ["x"] * 300, {"": ""}, [None], [-1],
)  # fmt: skip
ODD_BYTES: tuple[bytes, ...] = (
    b"NaN", b"Infinity", b"\xff\xfe", b"\\", b'"', b"}, {", b"]}", b"\x00", b",", b"[[[[", b"[" * 1500 + b"]" * 1500,
    b"[" * 100_000, b'{"a":' * 3000, b"5, null, ", b'\\"' * 2000, b"1e999", b"1e400", b"-9223372036854775809",
    b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"\xc0\xaf", b"\xed\xa0\x80", b"\r\n\r\n",
)  # fmt: skip
Mutation = Callable[[random.Random, bytes], bytes]


def cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randint(0, len(content))]


def drop(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + content[at + chance.randint(1, 80) :]


def insert(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + chance.choice((chance.choice(ODD_BYTES), chance.randbytes(8))) + content[at:]


def repeat(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + content[max(at - chance.randint(1, 400), 0) :]


def flip(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(min(chance.randint(1, 6), len(changed))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def zero(chance: random.Random, content: bytes) -> bytes:
    """Blank a stretch, as a file system does that lost a block."""
    at, size = chance.randint(0, len(content)), chance.choice((1, 4, 8, 64, 512, 4096))
    return content[:at] + bytes(min(size, len(content) - at)) + content[at + size :]


def poke(chance: random.Random, content: bytes) -> bytes:
    """Write an extreme number over some bytes: a length, an offset or a count that lies."""
    size = chance.choice((1, 2, 4, 8))
    if len(content) < size:
        return content
    at = chance.randint(0, len(content) - size)
    value = chance.choice((0, 1, 127, 128, 255, (1 << 8 * size) - 1, 1 << 8 * size - 1, chance.getrandbits(8 * size)))
    raw = (value & (1 << 8 * size) - 1).to_bytes(size, chance.choice(("little", "big")))
    return content[:at] + raw + content[at + size :]


BYTES: tuple[Mutation, ...] = (cut, drop, insert, repeat, flip, flip, zero, poke, poke)


def splice(chance: random.Random, contents: Sequence[bytes]) -> bytes:
    """Join the head of one input and the tail of another."""
    head, tail = chance.choice(contents), chance.choice(contents)
    return head[: chance.randint(0, len(head))] + tail[chance.randint(0, len(tail)) :]


def spoil_bytes(chance: random.Random, content: bytes, most: int = 3) -> bytes:
    for _ in range(chance.randint(1, most)):
        content = chance.choice(BYTES)(chance, content)
    return content


def spoil_json(chance: random.Random, content: bytes) -> bytes:
    """Change some values of a JSON text where they stand, write it in one of many ways, and now and then spoil bytes."""
    if chance.random() < 0.15:
        return spoil_bytes(chance, content)
    value = json.loads(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        value = change_value(chance, value)
    raw = write_odd(chance, value)
    return spoil_bytes(chance, raw, 1) if chance.random() < 0.1 else raw


def change_value(chance: random.Random, value: Any) -> Any:
    """Drop, double, retype, nest or exchange one value somewhere inside."""
    value = copy.deepcopy(value)
    places = list(list_places(value))
    if not places:
        return make_odd(chance)
    holder, key = chance.choice(places)
    how = chance.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.25 and isinstance(holder, list):
        holder[key:key] = [holder[key]] * chance.choice((1, 2, 300))
    elif how < 0.32:
        holder[key] = chance.choice(
            ([holder[key]], {"value": holder[key]}, nest(holder[key], chance.choice((3, 50, 150))))
        )
    elif how < 0.42:
        holder[key] = retype(holder[key])
    elif how < 0.52:
        other_holder, other_key = chance.choice(places)
        holder[key] = copy.deepcopy(other_holder[other_key])
    elif how < 0.57 and isinstance(holder, dict):
        holder[chance.choice((f"{key}x", "\ud800", "", _LONG, "__class__"))] = holder[key]
    else:
        holder[key] = make_odd(chance)
    return value


def list_places(value: Any) -> Any:
    """Yield holder and key of every value inside."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from list_places(inner)


def make_odd(chance: random.Random) -> Any:
    return _LONG if chance.random() < 0.03 else copy.deepcopy(chance.choice(ODD_VALUES))


def nest(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def retype(value: Any) -> Any:
    """Return the value as another type that looks like it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        return len(value)
    return list(value.items()) if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else 0


def write_odd(chance: random.Random, value: Any) -> bytes:
    """Write JSON as somebody else's writer may: in other encodings, with a mark, with half characters, with a key twice."""
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1)))
    how = chance.random()
    if how < 0.8:
        return text.encode("utf-8", chance.choice(("surrogatepass", "replace")))
    if how < 0.85:
        return b"\xef\xbb\xbf" + text.encode("utf-8", "replace")
    if how < 0.95:
        return text.encode(chance.choice(("utf-16", "utf-32", "latin-1", "utf-7")), "replace")
    return (
        text + text if how < 0.975 else text.replace("{", '{"schema_version": 99, "schema_version": 1, ', 1)
    ).encode("utf-8", "replace")
