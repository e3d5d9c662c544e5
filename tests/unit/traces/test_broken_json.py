"""A trace that is cut short keeps what is before the cut; any other fault is refused with its place in the file."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from collector.format.schema.errors import TraceError
from collector.traces import source
from collector.traces.format import TraceTables
from collector.traces.importing import import_trace
from collector.traces.reading import read_trace
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


def _find_place(path: Path, content: bytes) -> int:
    """Return the byte at which the trace is said to be broken."""
    with pytest.raises(TraceError) as caught:
        _read(path, content)
    found = re.fullmatch(
        rf"{path} is broken at byte (\d+): \S.*; export the trace again, or mend the file there", str(caught.value)
    )
    assert found is not None, str(caught.value)
    return int(found[1])


def _codes(read: TraceTables) -> list[str]:
    return [warning.code for warning in read.warnings]


@pytest.mark.parametrize(("at", "tail"), [(1, True), (4, False), (len(EVENTS), True), (len(EVENTS), False)])
@pytest.mark.parametrize("odd", [b"5", b"null", b'"str"', b"[1]", b'"]}, {"', b'{"name": {"not": "a name"}}'])
def test_an_item_that_is_no_event_is_named_by_its_place(tmp_path: Path, odd: bytes, at: int, tail: bool) -> None:
    items = _spell()
    content = _wrap([*items[:at], odd, *items[at:]], tail)
    assert content[_find_place(tmp_path / "t.json", content) :].startswith(odd)


@pytest.mark.parametrize("zeros", [1, 5_000_000])
def test_a_trace_that_ends_in_zeros_was_cut_short(tmp_path: Path, zeros: int) -> None:
    whole = b'{"traceEvents": [\n' + b",\n".join(_spell())
    kept = _read(tmp_path / "t.json", whole + bytes(zeros))
    assert kept.tables == _read(tmp_path / "t.json", whole).tables
    assert _codes(kept) == _codes(_read(tmp_path / "t.json", whole))


@pytest.mark.parametrize("at", [0, 4, len(EVENTS)])
def test_arguments_that_are_nested_too_deeply_are_refused(tmp_path: Path, at: int) -> None:
    items = _spell()
    odd = b'{"ph": "X", "name": "deep", "ts": 1, "args": {"a": ' + DEEP + b"}}"
    content = _wrap([*items[:at], odd, *items[at:]])
    assert _find_place(tmp_path / "t.json", content) <= content.index(odd)


@pytest.mark.parametrize("depth", range(780, 860, 8))
def test_arguments_of_any_depth_are_imported_or_refused(tmp_path: Path, depth: int) -> None:
    odd = b'{"ph": "X", "name": "deep", "ts": 1700000000000000.5, "dur": 1, "pid": 1, "tid": 1, "args": {"a": '
    odd += b"[" * depth + b"]" * depth + b"}}"
    path = tmp_path / "t.json"
    path.write_bytes(_wrap([json.dumps({**EVENTS[0], "ts": 1700000000000000.5}).encode(), odd]))
    try:
        manifest = import_trace(path, tmp_path / "run").rank().manifest
    except TraceError as error:
        said = str(error)
        assert said.startswith(f"{path} is broken at byte ")
    else:
        assert manifest.facts["events"]["slices"] == 2


@pytest.mark.parametrize("key", [b'{"deep": %s, "traceEvents"', b'{"traceEvents": [], "deep": %s, "x"'])
def test_metadata_that_is_nested_too_deeply_gives_our_own_error(tmp_path: Path, key: bytes) -> None:
    with pytest.raises(TraceError):
        _read(tmp_path / "t.json", key % DEEP + b': [{"ph": "X", "ts": 1, "name": "a"}]}')


def test_rank_in_metadata_that_is_nested_too_deeply_is_not_known(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", EVENTS, {"distributedInfo": DEEP.decode()})
    assert read_trace(path).facts.rank is None


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
def test_the_fault_is_where_the_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: bytes, pointed_at: bytes, at: int, packed: bool
) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 1 << 12)
    items = [json.dumps(event).encode() for event in training_steps(50)][:500]
    odd = b'{"ph": "X", "name": "odd", "ts": 1, ' + fault.removesuffix(b"}") + b"}"
    content = _wrap([*items[:at], odd, *items[at:], odd])
    place = _find_place(tmp_path / "t.json", gzip.compress(content, 1) if packed else content)
    start = content.index(odd)
    assert content[place : start + len(odd)].startswith(pointed_at)


def test_control_characters_in_metadata_are_read(tmp_path: Path) -> None:
    content = _wrap(_spell()).replace(b'"name": "a"', b'"name": "a\n\tb"').replace(b'"rank": 3', b'"rank": 3, "x": NaN')
    read = _read(tmp_path / "t.json", b'{"script": "first\nsecond", ' + content[1:])
    assert (read.facts.rank, len(read.facts.devices), _codes(read)) == (3, 2, [])


def test_an_open_list_that_ends_with_a_whole_event_keeps_it(tmp_path: Path) -> None:
    for end in (b"", b",", b",\n", b"\n", b"\n]"):
        read = _read(tmp_path / "t.json", b"[" + b",\n".join(_spell()) + end)
        assert (read.tables["slices"].num_rows, _codes(read)) == (len(EVENTS), [])


@pytest.mark.parametrize("left_out", [1, 2, 30, 35, 40])
def test_a_file_that_is_cut_inside_an_event_keeps_those_before(tmp_path: Path, left_out: int) -> None:
    content = b'{"traceEvents": [' + b",\n".join(_spell())
    read = _read(tmp_path / "t.json", content[:-left_out])
    assert (read.tables["slices"].num_rows, _codes(read)) == (len(EVENTS) - 1, ["trace_cut_off"])


def test_a_file_may_be_cut_at_any_byte(tmp_path: Path) -> None:
    odd = (
        b'{"ph": "X", "name": "\\u00e9\xc3\xa9", "ts": -1.5e3, "dur": 2, "args": {"on": true, "at": [{"id": 1}, null]}}'
    )
    content = b'{"traceEvents": [' + b",\n".join(_spell(odd))
    for length in range(len(content) - len(odd), len(content)):
        read = _read(tmp_path / "t.json", content[:length])
        assert (read.tables["slices"].num_rows, _codes(read)) == (len(EVENTS), ["trace_cut_off"])
    for length in range(len(odd) - 1):
        read = _read(tmp_path / "t.json", b"[" + b",\n".join(_spell(odd[: length + 1])))
        assert (read.tables["slices"].num_rows, _codes(read)) == (len(EVENTS), ["trace_cut_off"])


def test_an_event_with_more_inner_objects_than_cuts_are_tried_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BLOCK_BYTES", 1 << 10)
    inner = [{"name": "frame", "id": number} for number in range(400)]
    items = [json.dumps({**event, "args": {"stack": inner}}).encode() for event in EVENTS]
    assert _read(tmp_path / "t.json", _wrap(items)).tables["slices"].num_rows == len(EVENTS)


def test_truncated_gzip_keeps_what_is_before_the_cut(tmp_path: Path) -> None:
    content = json.dumps(build_trace(training_steps(400))).encode()
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(content)
    path.write_bytes(packed[: len(packed) // 2])
    read = read_trace(path)
    assert 1000 < read.tables["slices"].num_rows < len(training_steps(400))
    assert "trace_cut_off" in _codes(read)


def test_the_missing_end_of_a_string_takes_no_time(tmp_path: Path) -> None:
    rest = b'{"ph": "X", "name": "' + b'\\"' * 300_000
    read = _read(tmp_path / "t.json", b'{"traceEvents": [' + b",\n".join([*_spell(), rest]))
    assert read.tables["slices"].num_rows == len(EVENTS)


def test_conservation_holds_for_odd_events(tmp_path: Path) -> None:
    items = _spell(b"{}", b'{"ph": "B", "name": "open", "ts": 5}')
    counts = _read(tmp_path / "t.json", _wrap(items)).facts.facts["events"]
    kinds = ("slices", "counters", "memory", "flows", "metadata", "profiler_spans", "lost")
    assert sum(counts[kind] for kind in kinds) == len(items)


def test_a_trace_that_is_whole_says_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", build_trace(EVENTS)["traceEvents"])
    assert _codes(read_trace(path)) == []
