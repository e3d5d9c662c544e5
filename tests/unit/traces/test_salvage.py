"""What cannot be read of a damaged trace is one event, is counted, and its place in the file is said."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.schema.errors import TraceError
from collector.traces import import_trace, read_trace, source
from collector.traces.format import TraceTables
from collector.traces.kineto.decode.salvage import repair_json, split_items
from tests.support.traces import build_trace, training_steps, write_trace

EVENTS = training_steps()
AFTER = {"deviceProperties": [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}], "distributedInfo": {"rank": 3}}
DEEP = b"[" * 1500 + b"]" * 1500


def _spell(*items: bytes) -> list[bytes]:
    """Return the events of three steps as text, with more items behind them."""
    return [*(json.dumps(event).encode() for event in EVENTS), *items]


def _wrap(items: list[bytes], tail: bool = True) -> bytes:
    after = b"," + json.dumps(AFTER).encode()[1:] if tail else b"}"
    return b'{"schemaVersion": 1, "traceEvents": [\n' + b",\n".join(items) + b"]" + after


def _read(path: Path, content: bytes) -> TraceTables:
    path.write_bytes(content)
    return read_trace(path)


def _find_place(read: TraceTables) -> int:
    """Return the byte of the first fault that the warnings tell."""
    found = [re.search(r"first fault at byte (\d+): \S", warning.text) for warning in read.warnings]
    places = {int(match[1]) for match in found if match}
    assert len(places) == 1
    return places.pop()


def _codes(read: TraceTables) -> list[str]:
    return [warning.code for warning in read.warnings]


@pytest.mark.parametrize(("at", "tail"), [(0, True), (4, False), (len(EVENTS), True), (len(EVENTS), False)])
@pytest.mark.parametrize("odd", [b"5", b"null", b'"str"', b"[1]", b'"]}, {"', b'{"name": {"not": "a name"}}'])
def test_item_that_is_no_event_costs_only_itself_wherever_it_stands(
    tmp_path: Path, odd: bytes, at: int, tail: bool
) -> None:
    items = _spell()
    if at == 0 and not odd.startswith(b"{"):
        # A list that begins with something else is no list of events.
        items, at = [json.dumps({**EVENTS[0], "ts": 7}).encode(), *items], 1
    content = _wrap([*items[:at], odd, *items[at:]], tail)
    read = _read(tmp_path / "t.json", content)
    assert read.tables["slices"].num_rows == len(items)
    assert "trace_cut_off" not in _codes(read)
    assert content[_find_place(read) :].startswith(odd)
    assert read.events_lost == 1
    assert read.facts.rank == (3 if tail else None)


@pytest.mark.parametrize("items", [[b"5"], [b"null", b"[]"]])
def test_list_without_any_event_is_refused_with_the_place(tmp_path: Path, items: list[bytes]) -> None:
    with pytest.raises(TraceError, match=r"cannot be read: byte \d+: Expected `object`"):
        _read(tmp_path / "t.json", _wrap(items))


@pytest.mark.parametrize("at", [0, 4, len(EVENTS)])
def test_arguments_that_are_nested_too_deeply_cost_their_event(tmp_path: Path, at: int) -> None:
    items = _spell()
    odd = b'{"ph": "X", "name": "deep", "ts": 1, "args": {"a": ' + DEEP + b"}}"
    content = _wrap([*items[:at], odd, *items[at:]])
    read = _read(tmp_path / "t.json", content)
    assert (read.tables["slices"].num_rows, read.events_lost) == (len(EVENTS), 1)
    assert content[_find_place(read) :].startswith(odd)


@pytest.mark.parametrize("depth", range(780, 860, 8))
def test_arguments_of_any_depth_are_imported_or_cost_their_event(tmp_path: Path, depth: int) -> None:
    odd = b'{"ph": "X", "name": "deep", "ts": 1700000000000000.5, "dur": 1, "pid": 1, "tid": 1, "args": {"a": '
    odd += b"[" * depth + b"]" * depth + b"}}"
    path = tmp_path / "t.json"
    path.write_bytes(_wrap([json.dumps({**EVENTS[0], "ts": 1700000000000000.5}).encode(), odd]))
    manifest = import_trace(path, tmp_path / "run").rank().manifest
    assert manifest.facts["events"]["slices"] + manifest.events_lost == 2


@pytest.mark.parametrize("key", [b'{"deep": %s, "traceEvents"', b'{"traceEvents": [], "deep": %s, "x"'])
def test_metadata_that_is_nested_too_deeply_gives_our_own_error(tmp_path: Path, key: bytes) -> None:
    with pytest.raises(TraceError):
        _read(tmp_path / "t.json", key % DEEP + b': [{"ph": "X", "ts": 1, "name": "a"}]}')


def test_rank_in_metadata_that_is_nested_too_deeply_is_not_known(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", EVENTS, {"distributedInfo": DEEP.decode()})
    assert read_trace(path).facts.rank is None


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('"dur": 100.0', '"dur": NaN'),
        ('"name": "aten::linear"', '"name": "aten::\tli\nnear"'),
        ('"dur": 80\n  }', '"dur": 80,\n  }'),
        ('"name": "aten::linear"', '"name": "C:\\Users"'),
        ('"name": "aten::linear"', '"name": "half \\ud800 pair"'),
    ],
)
def test_faults_that_are_known_are_mended_and_said(tmp_path: Path, good: str, bad: str) -> None:
    text = json.dumps(build_trace(EVENTS), indent=1)
    path = tmp_path / "t.json"
    path.write_text(text.replace(good, bad) if good in text else text.replace("}\n ]", "},\n ]"), encoding="utf-8")
    read = read_trace(path)
    assert read.tables["slices"].num_rows == len(EVENTS)
    assert "trace_repaired" in _codes(read)
    assert read.events_lost == 0


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", EVENTS)
    path.write_bytes(path.read_bytes().replace(b"aten::linear", b"aten::\xff\xfe"))
    assert read_trace(path).tables["slices"].num_rows == len(EVENTS)


FAULTS = [
    (b'"dur": NaN', b"NaN"),
    (b'"cat": "cpu\n_op"', b"\n_op"),
    (b'"cat": "C:\\Users"', b"sers"),
    (b'"cat": "\xff\xfe"', b"\xff\xfe"),
    (b'"dur": 8,}', b"}"),
    (b'"id": [1]', b'{"ph": "X", "name": "odd"'),
    (b'"dur" 8', b"8"),
]


@pytest.mark.parametrize(("at", "packed"), [(1, False), (250, True), (500, False)])
@pytest.mark.parametrize(("fault", "pointed_at"), FAULTS)
def test_first_fault_is_where_the_warning_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: bytes, pointed_at: bytes, at: int, packed: bool
) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 1 << 12)
    items = [json.dumps(event).encode() for event in training_steps(50)][:500]
    odd = b'{"ph": "X", "name": "odd", "ts": 1, ' + fault.removesuffix(b"}") + b"}"
    content = _wrap([*items[:at], odd, *items[at:], odd])
    read = _read(tmp_path / "t.json", gzip.compress(content, 1) if packed else content)
    start = content.index(odd)
    assert content[_find_place(read) : start + len(odd)].startswith(pointed_at)
    assert "trace_cut_off" not in _codes(read)


def test_comma_with_nothing_behind_it_is_mended_with_its_place(tmp_path: Path) -> None:
    content = _wrap(_spell(b""))
    read = _read(tmp_path / "t.json", content)
    assert (read.tables["slices"].num_rows, read.events_lost) == (len(EVENTS), 0)
    assert content[_find_place(read) - 1 :].startswith(b",\n]")
    assert read.facts.rank == 3


def test_keys_behind_a_mended_list_are_read(tmp_path: Path) -> None:
    content = _wrap(_spell(b'{"ph": "X", "ts": 5, "dur": NaN}')).replace(b'"rank": 3}}', b'"rank": 3,},}')
    read = _read(tmp_path / "t.json", content)
    assert _codes(read) == ["trace_repaired", "trace_incomplete"]
    assert (read.facts.rank, len(read.facts.devices)) == (3, 2)


def test_event_without_its_first_bracket_is_one_loss(tmp_path: Path) -> None:
    items = _spell()
    read = _read(tmp_path / "t.json", _wrap([*items[:4], items[4][1:], *items[5:]]))
    assert (read.tables["slices"].num_rows, read.events_lost) == (len(EVENTS) - 1, 1)


def test_open_list_that_ends_with_a_whole_event_keeps_it(tmp_path: Path) -> None:
    read = _read(tmp_path / "t.json", b"[" + b",\n".join(_spell()))
    assert (read.tables["slices"].num_rows, _codes(read)) == (len(EVENTS), [])


def test_file_that_is_cut_inside_an_event_keeps_those_before(tmp_path: Path) -> None:
    content = b'{"traceEvents": [' + b",\n".join(_spell())
    read = _read(tmp_path / "t.json", content[:-30])
    assert (read.tables["slices"].num_rows, _codes(read)) == (len(EVENTS) - 1, ["trace_cut_off"])


def test_truncated_gzip_keeps_what_is_before_the_cut(tmp_path: Path) -> None:
    content = json.dumps(build_trace(training_steps(400))).encode()
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(content)
    path.write_bytes(packed[: len(packed) // 2])
    read = read_trace(path)
    assert 1000 < read.tables["slices"].num_rows < len(training_steps(400))
    assert "trace_cut_off" in _codes(read)


def test_end_of_a_string_that_is_missing_takes_no_time(tmp_path: Path) -> None:
    rest = b'{"ph": "X", "name": "' + b'\\"' * 300_000
    read = _read(tmp_path / "t.json", b'{"traceEvents": [' + b",\n".join([*_spell(), rest]))
    assert read.tables["slices"].num_rows == len(EVENTS)


@pytest.mark.parametrize(
    ("text", "items", "rest"),
    [
        (b'1, {"a": [2, 3]}, "x,]"] , "b": 1}', [b"1", b'{"a": [2, 3]}', b'"x,]"'], b' , "b": 1}'),
        (b"1, 2", [b"1", b"2"], None),
        (b'{"a": "\\"], "}]', [b'{"a": "\\"], "}'], b""),
        (b'1, "open', [b"1", b'"open'], None),
        (b"1] no list ends here", [b"1] no list ends here"], None),
        (b"]}", [b""], b"}"),
    ],
)
def test_items_are_told_by_their_brackets(text: bytes, items: list[bytes], rest: bytes | None) -> None:
    found = split_items(text)
    assert [text[start:end].strip() for start, end in found.places] == items
    assert (None if found.end is None else text[found.end :]) == rest


def test_text_with_more_items_than_anybody_writes_is_cut_into_a_limited_number() -> None:
    assert len(split_items(b"5," * 300_000).places) < 200_000


def test_conservation_holds_for_odd_items(tmp_path: Path) -> None:
    items = _spell(b"5", b"{}", DEEP, b'{"ph": "X", "name": []}', b"null")
    counts = _read(tmp_path / "t.json", _wrap(items)).facts.facts["events"]
    kinds = ("slices", "counters", "memory", "flows", "metadata", "profiler_spans", "lost")
    assert sum(counts[kind] for kind in kinds) == len(items)


def test_trace_that_is_whole_says_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", build_trace(EVENTS)["traceEvents"])
    assert _codes(read_trace(path)) == []


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
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_good_json_keeps_its_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert json.loads(repair_json(text)) == json.loads(text)
