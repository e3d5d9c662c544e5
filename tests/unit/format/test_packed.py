"""Packed runs: the same run again, and a clear refusal of every file that is no pack of ours."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stepscope
from collector.format.attempts import list_attempts
from collector.format.packed import MOST_BYTES, unpack, write_pack
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import RunError, RunNotFoundError, TableBrokenError, TraceError
from collector.format.schema.removal import scratch_folder
from collector.traces.importing import import_trace
from profiler_server.diagnosis.end_sentences import list_attempt_lines, spell_reports
from profiler_server.report import build_report
from tests.support.cases import PLANTED, build_case_run
from tests.support.runs import RunPlan, build_run
from tests.support.traces import build_trace, training_steps

RUN_FILE = "profiler/run.json"
RANK_FILE = "profiler/rank_0/rank.json"
STEPS_FILE = "profiler/rank_0/steps.parquet"


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of a run in the folder `origin`."""
    (tmp_path / "origin").mkdir()
    run = open_run(build_run(tmp_path / "origin/digits", RunPlan(steps=20)))
    write_pack(run, tmp_path / "digits.stepscope")
    return tmp_path / "digits.stepscope"


def write_trace(path: Path) -> Path:
    path.write_text(json.dumps(build_trace(training_steps())))
    return path


def rewrite(pack: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """Write the pack again with changed contents."""
    with zipfile.ZipFile(pack) as old:
        contents = {name: old.read(name) for name in old.namelist()}
    change(contents)
    with zipfile.ZipFile(pack, "w", zipfile.ZIP_STORED) as new:
        for name, content in contents.items():
            new.writestr(name, content)
    return pack


def refuse(pack: Path, folder: Path) -> str:
    """Return the refusal of a pack in one line. Nothing of the pack may lie anywhere outside of `folder`."""
    before = sorted(folder.parent.rglob("*"))
    folder.mkdir()
    with pytest.raises(TableBrokenError) as error:
        unpack(pack, folder)
    outside = [path for path in sorted(folder.parent.rglob("*")) if not path.is_relative_to(folder)]
    assert outside == before
    assert "\n" not in str(error.value)
    assert str(pack) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ["slow_read", "fixed_straggler", "hot_line"])
def test_a_packed_run_gives_the_report_of_the_original(tmp_path: Path, name: str) -> None:
    (tmp_path / "origin").mkdir()
    run = build_case_run(tmp_path / "origin" / name, PLANTED[name])
    write_pack(run, tmp_path / f"{name}.stepscope")
    again = stepscope.open_run(tmp_path / f"{name}.stepscope")
    assert again.path != run.path
    assert json.dumps(build_report(again)) == json.dumps(build_report(run))
    imported = import_trace(tmp_path / f"{name}.stepscope", tmp_path / "base/other")
    assert json.dumps(build_report(imported)) == json.dumps(build_report(run))


def test_tables_in_parts_are_packed_and_caches_are_not(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    run = open_run(build_run(tmp_path / "origin/digits", RunPlan(steps=20)))
    folder = layout.rank_path(run.path, 0)
    whole = layout.table_file(folder, "steps")
    parts = layout.table_parts_folder(folder, "steps")
    parts.mkdir()
    whole.rename(parts / "000000.parquet")
    for left in (folder / ".results/kept", folder / "events/ring.0", folder / "mine.txt", parts / "mine.parquet"):
        left.parent.mkdir(exist_ok=True)
        left.write_text("x")
    write_pack(run, tmp_path / "digits.stepscope")
    with zipfile.ZipFile(tmp_path / "digits.stepscope") as pack:
        names = pack.namelist()
    assert "profiler/rank_0/steps/000000.parquet" in names
    assert not any("mine" in name or "events" in name or ".results" in name for name in names)
    assert open_run(tmp_path / "digits.stepscope").table("steps").num_rows == run.table("steps").num_rows


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    """A pack of the second attempt of a job, with the first."""
    path = build_run(tmp_path / "origin/job", RunPlan(steps=20))
    first = build_run(path / layout.EARLIER_FOLDER / "20260101-000000", RunPlan(steps=7, state="crashed"))
    build_run(path / layout.EARLIER_FOLDER / "20250101-000000", RunPlan(steps=3))  # another job's
    for number, place in enumerate((first, path), 1):
        file = layout.run_file(place)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"job_id": "job", "attempt": number}))
    write_pack(open_run(path), tmp_path / "job.stepscope")
    return tmp_path / "job.stepscope"


def test_the_earlier_attempts_of_a_job_are_packed_with_its_run(attempts: Path, tmp_path: Path) -> None:
    (tmp_path / "base/mine").mkdir(parents=True)
    places = [
        open_run(attempts).path,
        *(import_trace(attempts, tmp_path / "base" / name).path for name in ("a", "mine")),
    ]
    for path in places:
        found = list_attempts(path)
        assert [(attempt.number, attempt.path.relative_to(path).as_posix()) for attempt in found] == [
            (1, "earlier/20260101-000000"),
            (2, "."),
        ]
        assert open_run(found[0].path).table("steps").num_rows < open_run(path).table("steps").num_rows
        assert [folder.name for folder in (path / layout.EARLIER_FOLDER).iterdir()] == ["20260101-000000"]
        reports = spell_reports(list_attempt_lines(open_run(path)))  # of the open pack, the folder is soon gone
        assert reports == ([f"Attempt 1: stepscope report {found[0].path}"] if path != places[0] else [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda files: files.pop("earlier/20260101-000000/profiler/run.json"),
            "holds no earlier/20260101-000000/profiler",
        ),
        (lambda files: files.pop("profiler/run.json"), "holds no profiler/run.json"),
        (lambda files: files.update({"earlier/20260101-000000/profiler/rank_0/steps.parquet": b"PAR1"}), "damaged"),
        (lambda files: files.update({"earlier/20260101-000000/profiler/run.json": b"{"}), "damaged"),
    ],
)
def test_a_hostile_earlier_attempt_is_refused(
    attempts: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], object], words: str
) -> None:
    assert words in refuse(rewrite(attempts, change), tmp_path / "target")


def test_the_limit_of_an_import_covers_all_attempts(attempts: Path, tmp_path: Path) -> None:
    for most, is_refused in ((40_000, False), (20_000, True)):
        (tmp_path / str(most)).mkdir()
        with pytest.raises(TableBrokenError, match="unpacks to more") if is_refused else nullcontext():
            unpack(attempts, tmp_path / str(most), most)


def test_a_run_that_its_pack_would_not_give_back_is_not_packed(pack: Path, tmp_path: Path) -> None:
    table = tmp_path / "origin/digits" / STEPS_FILE
    table.write_bytes(b"garbage")
    with pytest.raises(RunError, match=r"steps\.parquet is damaged"):
        write_pack(open_run(tmp_path / "origin/digits"), tmp_path / "again.stepscope")
    shutil.rmtree(table.parent)
    with pytest.raises(RunError, match="digits holds no rank yet"):
        write_pack(open_run(tmp_path / "origin/digits"), tmp_path / "again.stepscope")
    assert not (tmp_path / "again.stepscope").exists()


def test_the_same_run_gives_the_same_bytes(pack: Path, tmp_path: Path) -> None:
    write_pack(open_run(tmp_path / "origin/digits"), tmp_path / "again.stepscope")
    assert (tmp_path / "again.stepscope").read_bytes() == pack.read_bytes()


def test_an_opened_pack_leaves_nothing_behind(pack: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script = f"""
import collector, os
run = collector.open_run({str(pack)!r})
child = os.fork()
if child:
    os.waitpid(child, 0)  # it ends as a program does, and removes nothing of its parent
    print(len(os.listdir({str(temporary)!r})), run.table("steps").num_rows > 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1 True\n", "")
    assert list(temporary.iterdir()) == []


def test_a_run_that_records_is_not_packed(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "digits", RunPlan(steps=20, state="recording")))
    with pytest.raises(RunError, match="still records"):
        write_pack(run, tmp_path / "digits.stepscope")
    assert not (tmp_path / "digits.stepscope").exists()


def test_a_run_is_recovered_before_it_is_packed(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "digits", RunPlan(steps=20, state="crashed")))
    layout.events_path(layout.rank_path(run.path, 0)).mkdir()
    manifest = layout.rank_file(run.path, 0)
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"ended_unix_ns": None}))
    with pytest.raises(RunError, match="stepscope recover"):
        write_pack(run, tmp_path / "digits.stepscope")


def test_a_trace_is_no_run_and_the_error_says_import(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{}")
    for base in (None, tmp_path):
        with pytest.raises(RunNotFoundError, match=r"stepscope import trace\.json") as error:
            stepscope.open_run(tmp_path / "trace.json", base)
        assert "\n" not in str(error.value)


def test_a_run_below_the_base_goes_before_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/digits").write_text("a file")
    build_run(tmp_path / "runs/digits", RunPlan(steps=5))
    monkeypatch.chdir(tmp_path / "here")
    assert open_run("digits", tmp_path / "runs").path == tmp_path / "runs/digits"


def test_a_pack_is_imported_by_itself(pack: Path, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "trace.json")
    with pytest.raises(TraceError, match="import it by itself"):
        import_trace([pack, trace], tmp_path / "base/both")
    with pytest.raises(TraceError, match="steps-from"):
        import_trace(pack, tmp_path / "base/both", steps_from="whole")


@pytest.mark.parametrize(
    "name",
    [
        "../../evil",
        "/tmp/evil",
        "profiler/../../evil",
        "profiler/rank_0/../../../evil.parquet",
        "profiler/rank_0/steps.parquet/",
        "profiler/rank_00/rank.json",
        "profiler/rank_99999999/rank.json",
        "profiler\\rank_0\\steps.parquet",
        "profiler/rank_0/mine.parquet",
        "profiler/rank_0/events/ring.0",
        "profiler/rank_0/.results/x",
        "profiler/control.json",
        "PROFILER/run.json",
        "digits.stepscope",
        "earlier/profiler/run.json",
        "earlier/../profiler/run.json",
        "earlier/mine/profiler/run.json",
        "earlier/20260101-000000/earlier/20260101-000000/profiler/run.json",
        " ",
    ],
)
def test_a_name_that_is_no_file_of_a_run_is_refused(pack: Path, tmp_path: Path, name: str) -> None:
    rewrite(pack, lambda contents: contents.update({name: b"x"}))
    assert "no file of a run" in refuse(pack, tmp_path / "target")
    assert not (tmp_path / "target/profiler").exists()


def test_a_link_is_refused(pack: Path, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("profiler/rank_0/phases.parquet")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    rewrite(pack, lambda contents: contents.pop("profiler/rank_0/phases.parquet"))
    with zipfile.ZipFile(pack, "a") as file:
        file.writestr(link, "/etc/passwd")
    assert "is a link" in refuse(pack, tmp_path / "target")


def test_a_compressed_bomb_is_refused_before_it_unpacks(pack: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(pack, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(RUN_FILE, bytes(100 << 20))
    assert pack.stat().st_size < 200_000
    assert "is compressed or encrypted" in refuse(pack, tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []


def test_an_encrypted_pack_is_refused(pack: Path, tmp_path: Path) -> None:
    content = bytearray(pack.read_bytes())
    content[content.rfind(b"PK\x01\x02") + 8] |= 1
    pack.write_bytes(content)
    assert "encrypted" in refuse(pack, tmp_path / "target")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(pack: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(pack, "a") as file:
        file.writestr(RUN_FILE, "{}")
    assert "twice" in refuse(pack, tmp_path / "target")


def test_files_that_share_their_bytes_are_refused(pack: Path, tmp_path: Path) -> None:
    """One large content, listed under the names of many files: a bomb of stored files."""
    names = [f"profiler/rank_{rank}/rank.json" for rank in range(1, 60)]
    rewrite(pack, lambda contents: contents.update({RANK_FILE: b"x" * 100_000}))
    content = pack.read_bytes()
    with zipfile.ZipFile(pack) as file:
        shared, start = file.getinfo(RANK_FILE), file.start_dir
        for name in names:
            entry = zipfile.ZipInfo(name)
            for field in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(entry, field, getattr(shared, field))
            file.filelist.append(entry)
    with pack.open("r+b") as raw:
        raw.write(content[:start])
        raw.truncate()
        with zipfile.ZipFile(pack, "a") as again:
            again.filelist[:] = file.filelist
            again._didModify = True  # type: ignore[attr-defined]
    assert "larger than itself" in refuse(pack, tmp_path / "target")


@pytest.mark.parametrize("kept", [0, 1, 30, 2_000, -1, -25])
def test_a_pack_that_was_cut_is_refused(pack: Path, tmp_path: Path, kept: int) -> None:
    pack.write_bytes(pack.read_bytes()[:kept])
    assert "is no packed run" in refuse(pack, tmp_path / "target")


@pytest.mark.parametrize("place", range(10, 22))
@pytest.mark.parametrize("value", [0x00, 0x7F, 0xFF])
def test_a_list_that_claims_another_size_or_place_is_refused_or_harmless(
    pack: Path, tmp_path: Path, place: int, value: int
) -> None:
    content = bytearray(pack.read_bytes())
    content[len(content) - 22 + place] = value
    pack.write_bytes(content)
    (tmp_path / "target").mkdir()
    try:
        unpack(pack, tmp_path / "target")
    except TableBrokenError:
        return
    assert open_run(tmp_path / "target").ranks == (0,)


def test_a_byte_that_changed_on_the_way_is_noticed(pack: Path, tmp_path: Path) -> None:
    content = bytearray(pack.read_bytes())
    content[content.find(b"PAR1") + 100] ^= 0xFF
    pack.write_bytes(content)
    assert "CRC" in refuse(pack, tmp_path / "target")


def test_a_few_bytes_that_claim_many_rows_are_refused(pack: Path, tmp_path: Path) -> None:
    with scratch_folder() as folder:
        steps = pq.read_table(tmp_path / "origin/digits" / STEPS_FILE)
        one = steps.slice(0, 1)
        bomb = pa.table(
            [
                pa.repeat(one[name][0], 3_000_000)
                if not pa.types.is_dictionary(field.type)
                else pa.DictionaryArray.from_arrays(
                    pa.repeat(pa.scalar(0, pa.int32()), 3_000_000), one[name].chunk(0).dictionary
                )
                for name, field in zip(steps.column_names, steps.schema, strict=True)
            ],
            schema=steps.schema,
        )
        pq.write_table(bomb, folder / "bomb.parquet", compression="zstd", row_group_size=3_000_000)
        packed = (folder / "bomb.parquet").read_bytes()
    assert len(packed) < 500_000
    rewrite(pack, lambda contents: contents.update({STEPS_FILE: packed}))
    assert "3,000,000 rows" in refuse(pack, tmp_path / "target")


def test_a_run_over_the_limit_of_an_import_is_refused(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(TableBrokenError, match="the limit"):
        unpack(pack, tmp_path / "target", most_bytes=1000)
    assert MOST_BYTES > 1 << 30


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (RUN_FILE, b"{"),
        (RANK_FILE, b"[]"),
        (RANK_FILE, b"\xff\xfe"),
        (STEPS_FILE, b"PAR1 no table PAR1"),
        (STEPS_FILE, b""),
    ],
)
def test_a_damaged_file_of_the_run_is_named(pack: Path, tmp_path: Path, name: str, content: bytes) -> None:
    rewrite(pack, lambda contents: contents.update({name: content}))
    assert name in refuse(pack, tmp_path / "target")


def test_a_manifest_with_more_than_any_recording_has_is_refused(pack: Path, tmp_path: Path) -> None:
    def grow(contents: dict[str, bytes]) -> None:
        manifest = json.loads(contents[RANK_FILE])
        manifest["loaders"][0]["num_workers"] = 10_000
        contents[RANK_FILE] = json.dumps(manifest).encode()

    rewrite(pack, grow)
    assert "processes" in refuse(pack, tmp_path / "target")


def test_a_rank_without_its_manifest_or_with_that_of_another_is_refused(pack: Path, tmp_path: Path) -> None:
    rewrite(pack, lambda contents: contents.update({"profiler/rank_1/rank.json": contents[RANK_FILE]}))
    assert "is of rank 0" in refuse(pack, tmp_path / "target")
    rewrite(pack, lambda contents: contents.pop("profiler/rank_1/rank.json"))
    rewrite(pack, lambda contents: contents.update({"profiler/rank_1/steps.parquet": contents[STEPS_FILE]}))
    with pytest.raises(RunError, match="rank_1"):
        open_run(pack)


def test_a_folder_of_traces_may_hold_a_pack(pack: Path, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_trace(folder / "trace.json")
    pack.rename(folder / pack.name)
    assert import_trace(folder, tmp_path / "base/traces").manifest.source == "kineto"
