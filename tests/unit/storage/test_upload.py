"""Runs that go to a bucket: what is there after each part, and after whatever happens to the bucket."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import OutputError, UsageError
from collector.session.bucket import Bucket as BucketPlace
from collector.storage.ledger import read_ledger
from collector.storage.process import Follower
from collector.storage.uploading import RankUpload
from collector.storage.urls import find_spool, is_url, open_remote
from profiler_server.cli import main
from tests.support.buckets import Bucket, serve_bucket, set_account
from tests.support.live import build_live_run, edit_rank, edit_run
from tests.support.runs import RunPlan, build_run

pytest.importorskip("fsspec")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with serve_bucket(monkeypatch, tmp_path) as served:
        yield served


def list_local(run: Path) -> set[str]:
    found = (path for path in run.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(run).as_posix() for path in found}


def fetch(bucket: Bucket, name: str, to: Path) -> Path:
    bucket.files.get(f"bucket/{name}", str(to), recursive=True)
    return to


def test_a_finished_run_is_whole_in_the_bucket(bucket: Bucket, tmp_path: Path) -> None:
    run = build_run(tmp_path / "a", RunPlan(ranks=2))
    for rank in (0, 1):
        assert Follower(layout.rank_path(run, rank), bucket.url("runs/a")).follow()
    assert bucket.list_files("runs/a") == list_local(run)
    there = open_run(fetch(bucket, "runs/a", tmp_path / "there"))
    assert there.rank(1).table("steps") == open_run(run).rank(1).table("steps")


def test_parts_go_there_as_they_are_made_and_merged_ones_leave(bucket: Bucket, tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "a")
    folder = layout.rank_path(run, 0)
    rows = parts.read_table(folder, "fetches")
    upload = RankUpload(folder, bucket.url("runs/a"))
    sent: list[str] = []
    upload.upload(sent.append)
    assert sent[-1] == layout.RANK_FILE  # it announces no table that is not there yet
    for part in range(parts.PARTS_PER_MERGE):
        parts.write_part(rows, folder, "fetches", part)
    layout.table_file(folder, "fetches").unlink()
    upload.upload()
    assert "profiler/rank_0/fetches/000003.parquet" in bucket.list_files("runs/a")
    joined = layout.table_parts_folder(folder, "fetches")
    joined.joinpath("000000.parquet").rename(joined / "000000-000015.parquet")
    for part in range(1, parts.PARTS_PER_MERGE):
        joined.joinpath(f"{part:06d}.parquet").unlink()
    upload.upload()
    upload.finish()
    assert bucket.list_files("runs/a") == list_local(run)


def test_a_bucket_that_is_gone_in_the_middle_costs_nothing_once_it_is_back(bucket: Bucket, tmp_path: Path) -> None:
    run = build_run(tmp_path / "a")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            bucket.make()

    follower = Follower(layout.rank_path(run, 0), bucket.url("a"), wait)
    bucket.remove()
    assert follower.follow()
    assert waits == [1.0, 2.0, 4.0]
    assert bucket.list_files("a") == list_local(run)


def test_a_bucket_that_comes_back_empty_gets_everything_again(bucket: Bucket, tmp_path: Path) -> None:
    run = build_live_run(tmp_path / "a")
    upload = RankUpload(layout.rank_path(run, 0), bucket.url("a"))
    upload.upload()
    bucket.remove()
    edit_rank(run, 0, events_lost=3)
    with pytest.raises(FileNotFoundError):
        upload.upload()
    bucket.make()
    upload.upload()
    assert bucket.list_files("a") == list_local(run)  # run.json too, without which nothing is a run
    bucket.remove()
    bucket.make()
    upload.finish()  # nothing was sent meanwhile that would have told
    assert bucket.list_files("a") == list_local(run)


def test_a_lost_connection_is_tried_again(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    run = build_run(tmp_path / "a")
    folder = layout.rank_path(run, 0)
    upload = RankUpload(folder, bucket.url("a"))
    upload.upload()
    edit_rank(run, 0, events_lost=3)
    bucket.server.stop()
    problems: list[str] = []

    def come_back(seconds: float) -> None:
        ledger = read_ledger(folder)
        problems.append(ledger.problem if ledger else "")
        bucket.server._server_ready_event.clear()
        bucket.server._thread = threading.Thread(target=bucket.server._server_entry, daemon=True)
        bucket.server.start()

    assert Follower(folder, bucket.url("a"), come_back).follow()
    assert problems
    assert problems[0]
    assert open_run(fetch(bucket, "a", tmp_path / "there")).rank(0).manifest.events_lost == 3


def test_without_credentials_one_line_says_so_and_the_run_stays(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_account(monkeypatch, tmp_path, bucket.address, with_keys=False)
    monkeypatch.setenv("PROFILER_SPOOL_PATH", str(tmp_path / "spool"))
    place = BucketPlace(bucket.url("runs/a"))
    run = build_run(place.spool)
    before = list_local(run)
    place.start(layout.rank_path(run, 0))
    line = place.describe_end(patience_s=120)
    assert place._process is not None
    assert place._process.wait(60) == 1
    assert "\n" not in line
    assert "credentials" in line
    assert "goes on by itself" not in line
    assert f"stepscope upload {place.spool} s3://bucket/runs/a" in line
    assert list_local(run) == before


def test_the_command_completes_an_upload_and_sends_again_what_is_not_there_any_more(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = build_run(tmp_path / "a")
    monkeypatch.setattr(sys, "argv", ["stepscope", "upload", str(run), bucket.url("a")])
    files = len(list_local(run)) - 1  # run.json is no file of the rank

    def upload() -> tuple[int | str | None, str, str]:
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    for _ in range(2):
        bucket.remove()
        code, _, told = upload()
        assert (code, len(told.splitlines())) == (2, 1)
        assert "goes on from there" in told
        bucket.make()
        assert upload() == (0, f"Uploaded {files} files to {bucket.url('a')}\n", "")
        assert bucket.list_files("a") == list_local(run)


def test_hosts_of_one_job_share_a_run_and_its_clock(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there"
    runs = []
    for rank in (0, 1):
        run = build_run(tmp_path / f"host{rank}/a", RunPlan(ranks=2))
        other = layout.rank_path(run, 1 - rank)
        other.rename(tmp_path / f"unused{rank}")
        edit_run(run, launch_id="job", epoch_unix_ns=open_run(run).manifest.epoch_unix_ns + rank * 250_000_000)
        assert Follower(layout.rank_path(run, rank), url).follow()
        runs.append(open_run(run))
    there = open_run(tmp_path / "there")
    assert there.ranks == (0, 1)
    assert there.table("steps", 0) == runs[0].table("steps", 0)
    starts, moved = runs[1].table("steps", 1)["start_ns"], there.table("steps", 1)["start_ns"]
    assert moved.to_pylist() == [start + 250_000_000 for start in starts.to_pylist()]
    before, after = runs[1].rank(1).manifest.windows[0], there.rank(1).manifest.windows[0]
    assert after.start_ns == before.start_ns + 250_000_000


def test_a_disk_with_fixed_modes_takes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr("collector.storage.uploading.restrict", refuse)
    assert Follower(layout.rank_path(build_run(tmp_path / "a"), 0), f"file://{tmp_path}/there").follow()


def test_a_url_that_holds_another_run_is_left_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/there"
    assert Follower(layout.rank_path(build_run(tmp_path / "a"), 0), url).follow()
    before = (tmp_path / "there/profiler/rank_0/steps.parquet").stat().st_mtime_ns
    other = build_run(tmp_path / "b", RunPlan(steps=20))
    edit_run(other, created_unix_ns=1)
    with pytest.raises(OutputError, match="another run"):
        RankUpload(layout.rank_path(other, 0), url).upload()
    assert not Follower(layout.rank_path(other, 0), url).follow()
    assert (tmp_path / "there/profiler/rank_0/steps.parquet").stat().st_mtime_ns == before


def test_a_place_in_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILER_SPOOL_PATH", str(tmp_path / "spool"))
    place = BucketPlace("memory://bucket/runs/a")
    place.start(layout.rank_path(build_run(place.spool), 0))
    assert place.describe_end().startswith(
        f"the run is in {place.spool}: memory://bucket/runs/a is lost when this process ends"
    )


def test_urls_are_told_from_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [is_url(place) for place in ("s3://b/a", "file:///a", "memory://a")] == [True] * 3
    assert [is_url(place) for place in ("runs/a", "/a", "C:/a", "s3:/b", "", None, Path("s3://b"))] == [False] * 7
    monkeypatch.setenv("PROFILER_SPOOL_PATH", "/spool")
    assert find_spool("s3://bucket/../runs/a b") == Path("/spool/bucket/_/runs/a_b")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("s3fs", "gcsfs") else real(name))
    with pytest.raises(UsageError, match=r"stepscope\[storage\]"):
        open_remote("s3://bucket/a")
    with pytest.raises(UsageError, match="pip install gcsfs"):
        open_remote("gs://bucket/a")
    with pytest.raises(UsageError, match="nonsense://a"):
        open_remote("nonsense://a")
