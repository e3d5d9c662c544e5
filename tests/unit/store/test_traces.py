"""Which files below a base directory are traces, and which of them belong together."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from collector.format import finding
from collector.format.finding import JsonFile, scan_base
from collector.format.schema import layout
from collector.traces import import_trace
from collector.traces.reading import FORMATS
from profiler_server.store.catalog import Catalog
from profiler_server.store.traces import HEAD_BYTES, TraceFile, TraceFinder, group_traces, recognize_trace
from tests.support.traces import SAMPLES, build_trace, training_steps, write_trace

EVENTS = b'{"traceEvents": [{"ph": "X"}]}'


def describe(path: Path) -> JsonFile:
    found = path.stat()
    return JsonFile(path, found.st_size, found.st_mtime_ns)


def find_names(base: Path) -> list[str]:
    return [path.relative_to(base).as_posix() for path in (t.path for t in Catalog(base).list_runs().traces)]


@pytest.mark.parametrize(
    "data",
    [
        EVENTS,
        b"\xef\xbb\xbf \n" + EVENTS,
        gzip.compress(EVENTS, mtime=0),
        b'[{"name": "a", "args": {"x": 1}, "ph": "B"}',
        b'{"schemaVersion": 1, "deviceProperties": [' + b" " * HEAD_BYTES + b'], "traceEvents": []}',
        b'{"stepscope":{"version":1,"ranks":{"0":"' + b"A" * HEAD_BYTES,
    ],
)
def test_a_file_that_begins_like_a_trace_is_one(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "plain.json").write_bytes(data)
    assert recognize_trace(describe(tmp_path / "plain.json")) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b'{"schemaVersion": 1}',
        b'"traceEvents":',
        b"\x1f\x8b broken",
        gzip.compress(b"{}", mtime=0),
        b"\0",
    ],
)
def test_other_json_is_no_trace(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "plain.json").write_bytes(data)
    assert recognize_trace(describe(tmp_path / "plain.json")) is None


def test_real_traces_are_recognized() -> None:
    samples = sorted(SAMPLES.glob("*.json.gz"))
    if not samples:
        pytest.skip("the samples are not here")
    assert [path.name for path in samples if recognize_trace(describe(path)) is None] == []


def test_the_search_looks_for_the_names_of_all_traces_that_are_offered() -> None:
    offered = [kind for kind in FORMATS if kind.source in ("kineto", "export")]
    assert {suffix for kind in offered for suffix in kind.suffixes} == {*finding._JSON_SUFFIXES}


def test_a_packed_file_is_unpacked_only_as_far_as_its_head(tmp_path: Path) -> None:
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 5_000_000 + EVENTS))
    assert recognize_trace(describe(tmp_path / "bomb.json.gz")) is None


def test_own_files_and_links_are_not_looked_at(tmp_path: Path) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside.json"
    (base / "run" / layout.PROFILER_FOLDER / "rank_0/events").mkdir(parents=True)
    outside.write_bytes(EVENTS)
    for name in ("run/profiler/rank_0/events/w.json", "run/profiler/w.json", "benchmark.json", "run/control.json"):
        (base / name).write_bytes(EVENTS)
    (base / "link.json").symlink_to(outside)
    (base / "folder.json").mkdir()
    os.mkfifo(base / "pipe.json")
    (base / "plain.json").write_bytes(EVENTS)
    assert find_names(base) == ["plain.json"]


def test_a_link_that_took_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(EVENTS)
    file = describe(tmp_path / "real.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert recognize_trace(JsonFile(tmp_path / "link.json", file.size_bytes, file.modified_ns)) is None


def test_the_search_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "JSON_LIMIT", 2)
    for name in ("a.json", "b.json", "z.pt.trace.json"):
        (tmp_path / name).write_bytes(EVENTS)
    scan = scan_base(tmp_path)
    assert [file.path.name for file in scan.json_files] == ["z.pt.trace.json", "a.json"]
    assert "nearest 2 .json files" in scan.cut


def test_a_file_is_looked_into_again_when_it_changed(tmp_path: Path) -> None:
    path, finder = tmp_path / "plain.json", TraceFinder()
    path.write_bytes(b"{}")
    assert finder.find([describe(path)]) == ()
    path.write_bytes(EVENTS)
    assert [trace.path for trace in finder.find([describe(path)])] == [path]


def test_a_trace_is_listed_until_a_run_was_made_of_it(tmp_path: Path) -> None:
    for name in ("a/plain one.json", "b/plain one.json"):
        (tmp_path / name).parent.mkdir()
        write_trace(tmp_path / name, training_steps(3 if name.startswith("a") else 4))
    assert find_names(tmp_path) == ["a/plain one.json", "b/plain one.json"]
    import_trace(tmp_path / "a/plain one.json", tmp_path / "made")
    assert find_names(tmp_path) == ["b/plain one.json"]


def test_ranks_of_one_job_go_together(tmp_path: Path) -> None:
    for rank in (10, 2):
        head = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 16, "pg_config": [{"rank": 1}]}}
        (tmp_path / f"host{rank}.json").write_text(json.dumps(build_trace([], **head)))
    (tmp_path / "alone.json").write_bytes(EVENTS)
    traces = TraceFinder().find(scan_base(tmp_path).json_files)
    assert [[trace.path.name for trace in group] for group in group_traces(traces)] == [
        ["alone.json"],
        ["host2.json", "host10.json"],
    ]


def test_two_traces_of_one_rank_are_two_runs(tmp_path: Path) -> None:
    traces = [TraceFile(tmp_path / name, 1, rank) for name, rank in (("a", 0), ("b", 1), ("c", 1))]
    assert [len(group) for group in group_traces(traces)] == [1, 1, 1]
