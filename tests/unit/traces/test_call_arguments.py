"""Arguments that are read in bulk are what they are when each event is read by itself."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.kineto.decode.call_arguments import CALL_NAMES, CallArguments, read_call_arguments, read_each

KEYS = (*CALL_NAMES, "correlatio", "correlations", "External ids", "Ev Id", "Python", "device", "x")
numbers = st.one_of(st.integers(-3, 12), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False))
values = st.recursive(
    st.one_of(numbers, st.none(), st.booleans(), st.sampled_from(["", "7", "0x1F", "08", "a", 'a"b', "{", "}", *KEYS])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=4,
)
entries = st.dictionaries(st.sampled_from(KEYS), st.one_of(st.integers(0, 1 << 40), values), max_size=6)


@st.composite
def arguments(draw: st.DrawFn) -> list[msgspec.Raw]:
    given = draw(st.lists(st.one_of(entries, entries, entries, values), min_size=1, max_size=8))
    indent, separators = draw(st.sampled_from([(None, (",", ":")), (None, (", ", ": ")), (2, (",", " : "))]))
    texts = [json.dumps(entry, indent=indent, separators=separators, ensure_ascii=False) for entry in given]
    return [msgspec.Raw(text.encode() if draw(st.integers(0, 9)) else b"") for text in texts]


def check_same(raws: list[msgspec.Raw], linked: list[bool]) -> CallArguments:
    """Read arguments at once, and compare with what each says when it is read by itself, without a template."""
    found = read_call_arguments(raws, np.array(linked, bool))
    texts, ids = read_each(raws)
    assert [found.texts[number] for number in found.number.tolist()] == texts
    assert found.texts == tuple(dict.fromkeys(texts))
    expected = np.where(linked, ids, -1).tolist()
    assert [found.correlation.tolist(), found.external.tolist(), found.sequence.tolist()] == expected
    return found


@given(arguments(), st.integers(0, 255))
def test_bulk_reads_what_single_events_say(raws: list[msgspec.Raw], linked: int) -> None:
    check_same(raws, [bool(linked >> at & 1) for at in range(len(raws))])


@pytest.mark.parametrize(
    "text",
    [
        '{"correlation": 5, "correlation" : 0}',
        '{"correlation" : 0, "correlation": 5}',
        '{"External id": 5, "external id": 6}',
        '{"a\\"correlation": 5}',
        '{"a": "{", "correlation": 5}',
        '[{"correlation": 5}]',
        '{"correlation": 1234567890123456789, "Sequence number": 7}',
        '{"correlation": 123456789012345,"External id":-12345678,"Ev Idx":0}',
    ],
)
def test_odd_arguments_are_read_by_themselves(text: str) -> None:
    check_same([msgspec.Raw(text.encode())] * 300, [True] * 300)


def test_plain_arguments_need_no_second_look() -> None:
    def text(at: int) -> msgspec.Raw:
        return msgspec.Raw(json.dumps({"External id": at, "device": at % 2, "correlation": -at}).encode())

    found = check_same([text(at) for at in range(1000)], [True] * 1000)
    assert found.texts == (b'{"device": 0, }', b'{"device": 1, }')
    assert found.external.tolist() == list(range(1000))
    assert found.correlation.tolist() == [-at for at in range(1000)]
