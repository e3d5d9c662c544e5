"""Traces with random damage: only our own error comes out, whatever was hit."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.format.schema.errors import TraceError
from collector.traces import read_trace
from tests.support.traces import build_trace, training_steps

WHOLE = json.dumps(build_trace(training_steps(4), baseTimeNanoseconds=1), indent=1).encode()

odd_values = st.sampled_from(
    [b"null", b"[]", b"{}", b'""', b"-1", b"1e999", b"NaN", b"18446744073709551615", b'"x"', b"true", b"[[[[", b"\xff"]
)


@st.composite
def damages(draw: st.DrawFn) -> bytes:
    text = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(text) - 1, 0)))
        length = draw(st.integers(0, 40))
        kind = draw(st.sampled_from(["cut", "drop", "insert", "repeat", "value"]))
        if kind == "cut":
            del text[at:]
        elif kind == "drop":
            del text[at : at + length]
        elif kind == "insert":
            text[at:at] = draw(st.binary(max_size=length))
        elif kind == "repeat":
            text[at:at] = text[at : at + length]
        else:
            colon = text.find(b": ", at)
            end = text.find(b",", colon) if colon >= 0 else -1
            if end >= 0:
                text[colon + 2 : end] = draw(odd_values)
    return bytes(text)


@settings(max_examples=100)
@given(damages())
def test_damage_gives_tables_or_our_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(content)
        try:
            rows = read_trace(path).tables["slices"].num_rows
        except TraceError:
            rows = 1
    assert rows > 0
