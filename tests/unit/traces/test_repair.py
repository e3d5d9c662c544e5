from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.kineto.repair import repair_json


@pytest.mark.parametrize(
    ("bad", "value"),
    [
        (b'{"a": NaN, "b": -Infinity}', {"a": None, "b": None}),
        (b"[1, 2,]", [1, 2]),
        (b'{"a": [1,\n]\n,}', {"a": [1]}),
        (b'{"a": "x\ty\nz"}', {"a": "x y z"}),
        (b'{"path": "C:\\Users"}', {"path": "C:\\Users"}),
        (b'{"a": "NaN, ]"}', {"a": "NaN, ]"}),
        (b'{"a": "\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_known_faults_become_json(bad: bytes, value: object) -> None:
    assert json.loads(repair_json(bad)) == value


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_good_json_keeps_its_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert json.loads(repair_json(text)) == json.loads(text)
