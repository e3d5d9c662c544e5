"""A run made of traces: whole or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from collector import open_run
from collector.format.schema.errors import OutputError, TraceError
from collector.format.words import SOURCES
from collector.traces.importing import import_trace
from collector.traces.reading import FORMATS, read_trace
from tests.support.reading import read_events
from tests.support.traces import operator, training_steps, write_trace

_BASE_NS = 1_751_410_836_000_000_000


def _write_rank(path: Path, rank: int, base: int = 0) -> Path:
    metadata = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": base}
    return write_trace(path, training_steps(), metadata)


def test_run_holds_what_the_reader_read(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    import_trace(path, tmp_path / "runs/first")
    run = open_run(tmp_path / "runs/first")
    assert (run.state, run.manifest.source, run.ranks) == ("imported", "kineto", (0,))
    expected = read_trace(path).tables
    for name in ("steps", "operators", "kernels", "slices", "tracks"):
        assert run.table(name).to_pylist() == expected[name].to_pylist()


def test_each_format_has_a_source_of_its_own_that_a_redacted_run_shows() -> None:
    sources = [kind.source for kind in FORMATS]
    assert len(set(sources)) == len(sources)
    assert set(sources) <= set(SOURCES)  # collector/format/words.py


def test_tables_that_a_trace_lacks_say_how_to_get_them(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "run")
    status = run.rank().status("queues")
    assert status.state == "off"
    assert "runs that Stepscope records do" in status.reason


def test_a_file_of_a_folder_that_no_format_knows_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_trace(folder / "a.json", training_steps())
    (folder / "weights.pickle").write_bytes(b"no trace")
    run = import_trace(folder, tmp_path / "run")
    assert run.manifest.metadata["files"] == ["a.json"]
    (warning,) = run.rank().manifest.warnings
    assert (warning.code, warning.text.split(" that ")[0]) == ("passed_over", "1 file of the folder is no trace")
    with pytest.raises(TraceError, match="is not a trace that Stepscope knows"):
        import_trace(folder / "weights.pickle", tmp_path / "single")
    (folder / "a.json").unlink()
    with pytest.raises(TraceError, match="none of the 1 files is a trace"):
        import_trace(folder, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_folder_of_ranks_is_one_run_on_one_clock(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    _write_rank(folder / "a.json", 1, _BASE_NS + 5000)
    _write_rank(folder / "b.json", 0, _BASE_NS)
    run = import_trace(folder, tmp_path / "run")
    assert run.ranks == (0, 1)
    assert run.manifest.world_size == 2
    first = [run.table("slices", rank)["start_ns"][0].as_py() for rank in (0, 1)]
    assert first == [0, 5000]
    assert min(run.table("steps", 1)["start_ns"].to_pylist()) == 5000


def test_a_rank_that_says_another_size_of_its_job_than_most_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank, size in enumerate((1_000_000, 4, 4)):
        told = {"distributedInfo": {"rank": rank, "world_size": size}}
        write_trace(folder / f"rank{rank}.json", training_steps(), told)
    run = import_trace(folder, tmp_path / "run")
    assert run.manifest.world_size == 4
    said = [[warning.text for warning in run.rank(rank).manifest.warnings] for rank in range(3)]
    assert said == [
        ["This trace says that its job has 1,000,000 ranks; the others mostly say 4: it may be of another job."],
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "is not a trace"),
        (b'{"a": [1, 2, 3]}', "is not a trace"),
        (b'{"traceEvents": []}', "without a single event"),
        (b'{"traceEvents": {}}', "is not a trace"),
        (b'{"traceEvents": "none"}', "is not a trace"),
        (b"[1, 2, 3]", "is not a trace"),
        (b"\x00\x01\x02", "is not a trace"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "without a single event"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x1f\x8b broken", "is empty"),
        (b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1', "cannot be read|ends before"),
    ],
)
def test_what_is_no_trace_gets_a_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        import_trace(path, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.traces.source.BOMB_BYTES", 1 << 20)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (32 << 20)))
    with pytest.raises(TraceError, match="times its size"):
        import_trace(path, tmp_path / "run")


def test_event_without_an_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.traces.source.BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr("collector.traces.kineto.decode.stream.LIMIT_BYTES", 1 << 20)
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * (4 << 20))
    with pytest.raises(TraceError, match="no event ends"):
        import_trace(path, tmp_path / "run")


def test_missing_file_and_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist"):
        import_trace(tmp_path / "nothing.json", tmp_path / "run")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match="without a trace file"):
        import_trace(tmp_path / "folder", tmp_path / "run")


def test_trace_without_a_true_time_is_refused(tmp_path: Path) -> None:
    event = {**operator("a", 0, 1), "ts": 9_000_000_000_000_000}
    path = write_trace(tmp_path / "t.json", [event])
    with pytest.raises(TraceError, match="without an event that has a time"):
        import_trace(path, tmp_path / "run")


def test_iterator_of_the_loader_tells_whether_there_are_workers(tmp_path: Path) -> None:
    events = training_steps()
    workers = [{**e, "name": str(e["name"]).replace("SingleProcess", "MultiProcessing")} for e in events]
    both = [*events, {**workers[1], "ts": 3900}]
    told = {}
    for name, each in {"none": [operator("aten::add", 0, 5)], "own": events, "workers": workers, "both": both}.items():
        told[name] = read_events(tmp_path, each).facts.facts["data_loader"]
    assert told == {"none": None, "own": "single_process", "workers": "workers", "both": None}


@pytest.mark.parametrize(
    ("ranks", "names", "apart_s", "why"),
    [
        ((0, 0), ("a.json", "b.json"), 0, "both of rank 0"),
        ((None, None), ("host_23569.17.pt.trace.json", "host_23569.18.pt.trace.json"), 0, "by one process"),
        ((None, None), ("bert.json", "resnet.json"), 3600, "not recorded at the same time"),
        ((0, None), ("a.json", "b.json"), 3600, "one by one"),
    ],
)
def test_traces_that_are_no_ranks_of_one_job_are_refused(
    tmp_path: Path, ranks: tuple[int | None, ...], names: tuple[str, str], apart_s: int, why: str
) -> None:
    for index, (rank, name) in enumerate(zip(ranks, names, strict=True)):
        told = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
        base_ns = _BASE_NS + index * apart_s * 10**9
        write_trace(tmp_path / name, training_steps(), {**told, "baseTimeNanoseconds": base_ns})
    with pytest.raises(TraceError, match=why) as caught:
        import_trace(tmp_path, tmp_path / "runs/run")
    assert all(name in str(caught.value) for name in names)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "runs").iterdir()) == []


def test_traces_of_several_processes_at_one_time_are_ranks(tmp_path: Path) -> None:
    for pid in (100, 101, 102):
        name = f"host_{pid}.{_BASE_NS + pid}.pt.trace.json"
        write_trace(tmp_path / name, training_steps(), {"baseTimeNanoseconds": _BASE_NS + pid * 1000})
    assert import_trace(tmp_path, tmp_path / "runs/run").ranks == (0, 1, 2)


def test_a_broken_file_leaves_nothing_behind_and_a_run_that_is_there_is_not_touched(tmp_path: Path) -> None:
    good, bad = _write_rank(tmp_path / "good.json", 0), tmp_path / "bad.json"
    bad.write_text('{"traceEvents": [', encoding="utf-8")
    with pytest.raises(TraceError, match=r"bad\.json"):
        import_trace([good, bad], tmp_path / "runs/run")
    assert list((tmp_path / "runs").iterdir()) == []
    before = import_trace(good, tmp_path / "runs/run").table("slices").num_rows
    with pytest.raises(OutputError, match="already"):
        import_trace(good, tmp_path / "runs/run")
    assert open_run(tmp_path / "runs/run").table("slices").num_rows == before
