"""A base directory behind a URL: what is listed, what is fetched, and what happens when it does not answer."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.format import parts, stored_files
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import TableMissingError, UsageError
from profiler_server.cli import main
from profiler_server.derive.store import Store, find_store
from profiler_server.report import build_report
from profiler_server.settings import Settings
from profiler_server.store import mirror as mirrors
from profiler_server.store import mirrored_files
from profiler_server.store.catalog import Catalog
from profiler_server.store.mirror import Mirror, is_of_run, open_mirror
from tests.support.asking import Asker
from tests.support.buckets import Bucket, serve_bucket, set_account
from tests.support.live import edit_rank
from tests.support.runs import RunPlan, build_run

pytest.importorskip("fsspec")
Opener = Callable[[str], Mirror]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(stored_files, "LENDERS", [])
    with Store().held():
        yield open_mirror


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with serve_bucket(monkeypatch, tmp_path) as served:
        yield served


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every table as one that is too large to be fetched for its number of rows."""
    monkeypatch.setattr(mirrored_files, "SMALL_BYTES", 1)


def is_whole(path: Path) -> bool:
    return not path.stat().st_mode & stat.S_ISVTX


@pytest.mark.usefixtures("large")
def test_runs_of_a_bucket_are_listed_and_shown_without_their_slices(
    bucket: Bucket, opened: Opener, tmp_path: Path
) -> None:
    local = build_run(tmp_path / "runs/team/a", RunPlan(ranks=2))
    bucket.files.put(str(tmp_path / "runs"), "bucket/", recursive=True)
    mirror = opened(bucket.url("runs"))
    asker = Asker(mirror.root, Settings(mirror.root))
    assert [run["id"] for run in asker.ask("/api/v1/runs").json()["runs"]] == ["team/a"]
    assert bucket.url("runs") in asker.ask("/").text
    for page in ("", "steps", "data"):
        assert asker.ask(f"/runs/team/a/{page}").status_code == 200
    slices = layout.table_file(layout.rank_path(mirror.root / "team/a", 1), "slices")
    assert slices.stat().st_size == layout.table_file(layout.rank_path(local, 1), "slices").stat().st_size
    assert not is_whole(slices)
    assert asker.ask("/runs/team/a/timeline?rank=1").status_code == 200
    there = open_run(mirror.root / "team/a")
    assert there.rank(1).table("slices") == open_run(local).rank(1).table("slices")
    assert is_whole(slices)


def test_a_run_behind_a_url_has_the_figures_that_it_has_here(opened: Opener, tmp_path: Path) -> None:
    local = build_run(tmp_path / "runs/a")
    there = open_run(opened(f"file://{tmp_path}/runs").root / "a")
    assert build_report(there)["ranks"] == build_report(open_run(local))["ranks"]


def test_what_changed_there_is_seen_here(opened: Opener, tmp_path: Path) -> None:
    run = build_run(tmp_path / "runs/a", RunPlan(steps=20))
    mirror = opened(f"file://{tmp_path}/runs")
    catalog = Catalog(mirror.root)
    assert [entry.headline.steps for entry in catalog.list_runs().runs] == [20]
    rows = parts.read_table(layout.rank_path(run, 0), "steps").slice(0, 12)
    parts.write_table(rows, layout.table_file(layout.rank_path(run, 0), "steps"))
    edit_rank(run, 0, events_lost=9)
    build_run(tmp_path / "runs/b")
    mirror.list_now()
    catalog.look_again()
    assert {entry.id: entry.headline.steps for entry in catalog.list_runs().runs} == {"a": 12, "b": 40}
    assert open_run(mirror.root / "a").rank(0).manifest.events_lost == 9


def test_what_is_removed_there_is_removed_here(opened: Opener, tmp_path: Path) -> None:
    build_run(tmp_path / "runs/a")
    gone = build_run(tmp_path / "runs/b")
    mirror = opened(f"file://{tmp_path}/runs")
    for path in sorted(gone.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    mirror.list_now()
    assert [entry.id for entry in Catalog(mirror.root).list_runs().runs] == ["a"]
    assert not (mirror.root / "b").exists()


@pytest.mark.usefixtures("large")
def test_a_bucket_that_does_not_answer_leaves_what_was_seen(
    bucket: Bucket, opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    build_run(tmp_path / "runs/a")
    bucket.files.put(str(tmp_path / "runs"), "bucket/", recursive=True)
    mirror = opened(bucket.url("runs"))
    asker = Asker(mirror.root)
    steps = asker.ask("/runs/a/steps")
    bucket.server.stop()
    mirror.list_now()
    assert "does not answer" in asker.ask("/api/v1/runs").json()["cut"]
    assert asker.ask("/runs/a/steps").status_code == steps.status_code == 200
    with pytest.raises(TableMissingError, match="cannot be fetched"):
        open_run(mirror.root / "a").rank(0).table("slices")


def test_without_credentials_the_server_says_so_in_one_line(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_account(monkeypatch, tmp_path, bucket.address, with_keys=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["stepscope", "--summary-base-dir", bucket.url("runs"), "--port", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert (ended.value.code, len(told.splitlines())) == (2, 1)
    assert "credentials" in told


def test_a_folder_that_is_not_there_is_refused(opened: Opener, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be listed"):
        opened(f"file://{tmp_path}/nowhere")


@pytest.mark.usefixtures("large")
def test_rows_are_counted_from_the_end_of_a_table(opened: Opener, tmp_path: Path) -> None:
    run = build_run(tmp_path / "runs/a")
    there = open_run(opened(f"file://{tmp_path}/runs").root / "a").rank(0)
    assert there.count_rows("slices") == open_run(run).rank(0).count_rows("slices")
    mirrored = layout.table_file(there.folder, "slices")
    assert not is_whole(mirrored)
    assert there.table("slices") == open_run(run).rank(0).table("slices")
    assert is_whole(mirrored)


def test_whole_files_stay_within_bounds(opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        run = build_run(tmp_path / f"runs/{name}")
    size = layout.table_file(layout.rank_path(run, 0), "steps").stat().st_size
    mirror = opened(f"file://{tmp_path}/runs")
    monkeypatch.setattr(mirror.files, "_most_bytes", 2 * size)
    tables = [layout.table_file(layout.rank_path(mirror.root / name, 0), "steps") for name in ("a", "b", "c")]
    before = [os.stat(table).st_mtime_ns for table in tables]
    for name in ("a", "b", "a", "c"):
        open_run(mirror.root / name).rank(0).table("steps")
    assert [is_whole(table) for table in tables] == [True, False, True]
    assert [os.stat(table).st_mtime_ns for table in tables] == before
    assert open_run(mirror.root / "b").rank(0).table("steps").num_rows


def test_a_second_server_fetches_nothing_again(opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(tmp_path / "runs/a")
    root = opened(f"file://{tmp_path}/runs").root
    open_run(root / "a").rank(0).table("steps")
    find_store().part(mirrors._Mirrors).clear()
    monkeypatch.setattr(stored_files, "LENDERS", [])
    changed = [path.stat().st_ctime_ns for path in sorted(root.rglob("*.*"))]
    open_mirror(f"file://{tmp_path}/runs")
    open_run(root / "a").rank(0).table("steps")
    assert [path.stat().st_ctime_ns for path in sorted(root.rglob("*.*"))] == changed


@pytest.mark.parametrize(
    "name",
    [
        "../profiler/run.json", "a/profiler/../../x.parquet", "/profiler/run.json", "a//profiler/run.json",
        "a/profiler/.hidden/x.parquet", "a/profiler/rank_0/x.exe", "a/profiler/rank_0/control.json", "a/run.json",
        "a\\b/profiler/run.json", "a/profiler/rank.json", "a/profiler/rank_0/run.json",
        "a/profiler/rank_0/run.json/rank.json", "a/profiler/rank_0/rank.json/rank.json",
        "a/profiler/run.json/profiler/rank.json", "a/profiler/run.json/", "a/profiler/rank_00/rank.json",
        "a/profiler/rank_x/steps.parquet", "a/profiler/rank_0/unknown.parquet", "a/profiler/rank_0/steps/x.parquet",
        "a/profiler/rank_0/steps/0/1.parquet", "a/profiler/rank_0/steps/1.parquet",
        "a/profiler/rank_0/\x1b[2Jsteps.parquet", "a\nb/profiler/run.json", "a\x85b/profiler/run.json",
        "a/Profiler/run.json", "a/profiler/RUN.JSON", "a/profiler/rank_0/Steps.parquet", "a/../profiler/run.json",
        "./profiler/run.json", f"{'x' * 300}/profiler/run.json", "/".join("a" * 30) + "/profiler/run.json",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_passed_over(name: str) -> None:
    assert not is_of_run(name)


@pytest.mark.parametrize(
    "name",
    [
        "profiler/run.json", "team/a/profiler/rank_12/rank.json", "team/a/profiler/rank_0/steps.parquet",
        "team/a/profiler/rank_0/steps/000001.parquet",
        "a/earlier/20260101-000000/profiler/rank_0/steps/000000-000015.parquet", "a profiler/ä b/profiler/run.json",
    ],
)  # fmt: skip
def test_the_files_of_a_run_are_taken(name: str) -> None:
    assert is_of_run(name)


def test_an_object_below_a_file_of_a_run_hides_nothing(
    bucket: Bucket, opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build_run(tmp_path / "runs/new")
    build_run(tmp_path / "runs/evil", RunPlan(steps=3))
    bucket.files.put(str(tmp_path / "runs"), "bucket/", recursive=True)
    for name in ("profiler/run.json/profiler/run.json", "profiler/run.json/profiler/rank.json"):
        bucket.files.pipe_file(f"bucket/runs/evil/{name}", b"{}")
    mirror = opened(bucket.url("runs"))
    for _ in range(2):
        mirror.list_now()
        assert mirror.problem == ""
        assert {entry.id for entry in Catalog(mirror.root).list_runs().runs} == {"evil", "new"}
    assert "evil/profiler/run.json/profiler/run.json" in Catalog(mirror.root).list_runs().cut
    (told,) = [record.message for record in caplog.records if "run.json/profiler/run.json" in record.message]
    assert bucket.url("runs") in told


def test_an_object_that_cannot_be_read_hides_no_other(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        build_run(tmp_path / f"runs/{name}")
    mirror = opened(f"file://{tmp_path}/runs")
    bad = layout.run_file(tmp_path / "runs/a")
    for folder in ("a", "b"):
        layout.run_file(tmp_path / "runs" / folder).touch()
    build_run(tmp_path / "runs/c")
    read = mirror._remote.files.cat

    def refuse(paths: list[str], **rest: str) -> dict[str, object]:
        return {path: PermissionError("no") if path == str(bad) else data for path, data in read(paths, **rest).items()}

    monkeypatch.setattr(mirror._remote.files, "cat", refuse)
    mirror.list_now()
    assert {entry.id for entry in Catalog(mirror.root).list_runs().runs} == {"a", "b", "c"}
    assert "a/profiler/run.json" in mirror.cut
    monkeypatch.setattr(mirror._remote.files, "cat", lambda paths, **rest: dict.fromkeys(paths, OSError("no network")))
    for folder in ("a", "b", "c"):
        layout.run_file(tmp_path / "runs" / folder).touch()
    mirror.list_now()
    assert "does not answer" in mirror.cut
    monkeypatch.undo()
    mirror.list_now()
    assert mirror.cut == ""


def test_a_file_that_lies_where_a_folder_was_is_taken_in_the_end(opened: Opener, tmp_path: Path) -> None:
    build_run(tmp_path / "runs/a/profiler/run.json")
    build_run(tmp_path / "runs/b")
    mirror = opened(f"file://{tmp_path}/runs")
    shutil.rmtree(tmp_path / "runs/a")
    build_run(tmp_path / "runs/a")
    build_run(tmp_path / "runs/c")
    mirror.list_now()
    assert "c" in {entry.id for entry in Catalog(mirror.root).list_runs().runs}
    mirror.list_now()
    assert mirror.cut == ""
    assert {entry.id for entry in Catalog(mirror.root).list_runs().runs} == {"a", "b", "c"}


def test_a_window_cannot_be_asked_for_behind_a_url(opened: Opener, tmp_path: Path) -> None:
    build_run(tmp_path / "runs/a", RunPlan(state="recording"))
    mirror = opened(f"file://{tmp_path}/runs")
    answer = Asker(mirror.root).ask(
        "/api/v1/runs/a/window", "POST", {"content-type": "application/json"}, b'{"first": 5, "count": 2}'
    )
    assert answer.status_code == 409
    assert not (mirror.root / "a/profiler/control.json").exists()
