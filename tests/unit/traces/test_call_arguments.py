"""Arguments that are read in bulk are what they are when each event is read by itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.kineto import percall
from collector.traces.kineto.percall import CallArguments, read_call_arguments

KEYS = (*percall.CALL_NAMES, "correlatio", "correlations", "External ids", "Ev Id", "Python", "device", "x")
numbers = st.one_of(st.integers(-3, 12), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False))
values = st.recursive(
    st.one_of(numbers, st.none(), st.booleans(), st.sampled_from(["", "7", "0x1F", "08", "a", 'a"b', "{", "}", *KEYS])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=4,
)
entries = st.dictionaries(st.sampled_from(KEYS), st.one_of(st.integers(0, 1 << 40), values), max_size=6)


@st.composite
def arguments(draw: st.DrawFn) -> list[msgspec.Raw]:
    given = draw(st.lists(st.one_of(entries, entries, entries, values), max_size=8))
    indent, separators = draw(st.sampled_from([(None, (",", ":")), (None, (", ", ": ")), (2, (",", " : "))]))
    texts = [json.dumps(entry, indent=indent, separators=separators, ensure_ascii=False) for entry in given]
    return [msgspec.Raw(text.encode() if draw(st.integers(0, 9)) else b"") for text in texts]


def show(found: CallArguments) -> Any:
    ids = found.correlation.tolist(), found.external.tolist(), found.sequence.tolist()
    return [found.texts[number] for number in found.number.tolist()], found.texts, ids


@given(arguments(), st.sampled_from([0, 256]), st.data())
def test_bulk_reads_what_single_events_say(raws: list[msgspec.Raw], few: int, data: st.DataObject) -> None:
    linked = np.array([data.draw(st.booleans()) for _ in raws], bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(percall, "_FEW", few)
        assert show(read_call_arguments(raws, linked)) == show(percall._read_singly(raws, linked))


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
    raws = [msgspec.Raw(text.encode())] * 300
    linked = np.ones(len(raws), bool)
    assert show(read_call_arguments(raws, linked)) == show(percall._read_singly(raws, linked))


def test_plain_arguments_need_no_second_look() -> None:
    def text(at: int) -> msgspec.Raw:
        return msgspec.Raw(json.dumps({"External id": at, "device": at % 2, "correlation": -at}).encode())

    found = read_call_arguments([text(at) for at in range(1000)], np.ones(1000, bool))
    assert found.texts == (b'{"device": 0, }', b'{"device": 1, }')
    assert found.external.tolist() == list(range(1000))
    assert found.correlation.tolist() == [-at for at in range(1000)]
