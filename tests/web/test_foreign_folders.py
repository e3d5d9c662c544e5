"""Hostile runs and folders of runs: neither a page, an upload nor `recover` removes, writes or reads what is not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.format import parts
from collector.format.schema import layout
from collector.options import parse_options
from collector.session.recording import Recording
from collector.sidecar.recorder import Recorder
from profiler_server.web.uploads import waiting
from tests.support import forking, shapes
from tests.support.asking import Asker, wait_for_import
from tests.support.runs import RunPlan, build_run
from tests.support.traces import build_trace, training_steps

SHORT = RunPlan(steps=14)
TRACE = json.dumps(build_trace(training_steps())).encode()
DAYS_AGO = time.time() - 3 * 86_400
PAGES = ("/", "/timeline", "/api", "/operators", "/steps")


def send(asker: Asker, name: str, data: bytes) -> dict[str, object]:
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    return wait_for_import(asker, asker.ask("/api/v1/imports", "POST", kind, head + data + b"\r\n--b--\r\n"))


def make_strangers(folder: Path) -> list[Path]:
    """Make somebody's folders, old as they are; return their files."""
    files = []
    for name in ("photos", "code"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("years")
        files.append(folder / name / "file")
        os.utime(folder / name, (DAYS_AGO, DAYS_AGO))
    return files


def take_stock(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", ["../../..", "../../../alice"])
@pytest.mark.parametrize("cache", [".timeline", ".results"])
def test_a_cache_that_is_a_link_costs_nobody_a_file(tmp_path: Path, target: str, cache: str) -> None:
    """C1: the folder of a cache led to the folder of all runs, and what was old there was removed."""
    build_run(tmp_path / "alice", SHORT)
    strangers = make_strangers(tmp_path / "notes")
    build_run(tmp_path / "evil", SHORT)
    link = layout.rank_path(tmp_path / "evil", 0) / cache
    link.symlink_to(target)
    os.utime(link, (time.time() + 86_400,) * 2, follow_symlinks=False)
    os.utime(tmp_path / "evil", (time.time() + 86_400,) * 2)
    before = take_stock(tmp_path / "alice")
    answer = Asker(tmp_path).ask("/runs/evil/timeline")
    assert take_stock(tmp_path / "alice") == before
    assert [path.read_text() for path in strangers] == ["years", "years"]
    assert answer.status_code == 409
    assert f"rank_0/{cache} is a link" in answer.text
    assert "replace it by a copy" in answer.text


@pytest.mark.parametrize("cache", [".timeline", ".TIMELINE"])
def test_folders_in_a_cache_that_are_not_ours_stay(tmp_path: Path, cache: str) -> None:
    build_run(tmp_path / "run", SHORT)
    strangers = make_strangers(layout.rank_path(tmp_path / "run", 0) / cache)
    hidden = make_strangers(layout.rank_path(tmp_path / "run", 0) / cache / ".hidden")
    assert Asker(tmp_path).ask("/runs/run/timeline").status_code == 200
    assert [path.read_text() for path in (*strangers, *hidden)] == ["years"] * 4


def test_a_timeline_is_still_cached_and_its_older_ones_removed(tmp_path: Path) -> None:
    build_run(tmp_path / "run", SHORT)
    root = layout.rank_path(tmp_path / "run", 0) / ".timeline"
    for number in range(4):
        (root / f"{number:016x}").mkdir(parents=True)
        (root / f"{number:016x}/seal.json").touch()
        os.utime(root / f"{number:016x}", (DAYS_AGO + number,) * 2)
    assert Asker(tmp_path).ask("/runs/run/timeline").status_code == 200
    names = sorted(path.name for path in root.iterdir())
    assert len(names) == 2
    assert f"{3:016x}" in names


@pytest.mark.parametrize("inner", ["rank_0", "rank_0/rank.json", "rank_0/steps.parquet", "run.json"])
def test_no_page_shows_what_a_link_in_a_run_leads_to(tmp_path: Path, inner: str) -> None:
    build_run(tmp_path / "alice", SHORT)
    build_run(tmp_path / "evil", SHORT)
    path = layout.profiler_path(tmp_path / "evil") / inner
    path.rename(tmp_path / "aside")
    path.symlink_to(layout.profiler_path(tmp_path / "alice") / inner)
    asker = Asker(tmp_path)
    for page in ("/runs/evil/", "/runs/evil/timeline", "/api/v1/runs/evil", "/api/v1/runs/evil/tables/steps"):
        answer = asker.ask(page)
        assert (answer.status_code, f"{inner} is a link" in answer.text) == (409, True), page
    assert f"{inner} is a link" in asker.ask("/").text


@pytest.mark.parametrize("text", [b"not a trace", TRACE])
def test_an_upload_to_a_room_that_is_a_link_costs_nobody_a_file(tmp_path: Path, text: bytes) -> None:
    """C2: what was older than a day behind the link was removed."""
    base = tmp_path / "base"
    base.mkdir()
    strangers = make_strangers(tmp_path / "victim")
    (base / ".stepscope-uploads").symlink_to(tmp_path / "victim")
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n\r\n'
    answer = Asker(base).ask("/api/v1/imports", "POST", kind, head + text + b"\r\n--b--\r\n")
    assert [path.read_text() for path in strangers] == ["years", "years"]
    assert sorted(path.name for path in (tmp_path / "victim").iterdir()) == ["code", "photos"]
    assert answer.status_code == 500
    assert ".stepscope-uploads" in answer.text
    assert "link" in answer.text


def test_an_upload_leaves_folders_of_others_in_its_room_alone(tmp_path: Path) -> None:
    strangers = make_strangers(tmp_path / ".stepscope-uploads")
    strangers += make_strangers(tmp_path / ".stepscope-uploads" / ("0" * 16))
    os.utime(tmp_path / ".stepscope-uploads" / ("0" * 16), (DAYS_AGO, DAYS_AGO))
    assert send(Asker(tmp_path), "a.json", TRACE)["state"] == "done"
    assert [path.read_text() for path in strangers] == ["years"] * 4


@pytest.mark.parametrize(("name", "text"), [("bank.json", b"not a trace"), ("bank.json", TRACE)])
def test_an_import_leaves_folders_that_resemble_its_name_alone(tmp_path: Path, name: str, text: bytes) -> None:
    """C5: `.bank.backup` was removed for an import called `bank`."""
    strangers = make_strangers(tmp_path / ".bank.backup")
    strangers += make_strangers(tmp_path / ".bank.0123456789abcdef")
    send(Asker(tmp_path), name, text)
    assert [path.read_text() for path in strangers] == ["years"] * 4
    left = [path.name for path in tmp_path.iterdir() if path.name not in ("bank", ".stepscope-summaries")]
    assert sorted(left) == [".bank.0123456789abcdef", ".bank.backup"]


def recover(base: Path, run: str) -> subprocess.CompletedProcess[str]:
    words = ("recover", run, "--summary-base-dir", str(base))
    return forking.run([sys.executable, "-m", "profiler_server", *words])


def cut_off(run: Path) -> Path:
    """Record a run whose process is gone before its tables are whole, but for that of the steps; return the rank's folder."""
    recording = Recording(run, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    shapes.plain()
    recording.leave()
    rank = recording.place.rank_folder
    recorder = Recorder(rank)
    recorder.poll()
    recorder.flush()
    parts.join_parts(rank, "steps")
    notes = json.loads((rank / "events/notes.json").read_text())
    (rank / "events/notes.json").write_text(json.dumps(notes | {"pid": (1 << 22) + 1}))
    return rank


def make_files(folder: Path) -> None:
    folder.mkdir()
    for name in ("thesis.tex", "photo.jpg", "000000.parquet"):
        (folder / name).write_text("years")


@pytest.mark.parametrize("inner", ["steps", "events"])
def test_recovery_of_a_run_with_a_link_removes_nothing_behind_it(tmp_path: Path, inner: str) -> None:
    """C3: every file behind `rank_0/steps` was removed."""
    rank = cut_off(tmp_path / "evil")
    make_files(tmp_path / "victim")
    (rank / inner).rename(tmp_path / "aside")
    if inner == "events":
        for file in (tmp_path / "aside").iterdir():
            file.rename(tmp_path / "victim" / file.name)
    before = take_stock(tmp_path / "victim")
    (rank / inner).symlink_to(tmp_path / "victim")
    done = recover(tmp_path, "evil")
    assert take_stock(tmp_path / "victim") == before
    assert (rank / inner).is_symlink()
    assert done.returncode == 2
    assert f"rank_0/{inner} is a link" in done.stderr
    assert "replace it by a copy" in done.stderr


def test_recovery_leaves_what_others_put_among_the_parts_of_a_table(tmp_path: Path) -> None:
    rank = cut_off(tmp_path / "run")
    for name in ("thesis.txt", "1.parquet", "000000.PARQUET"):
        (rank / "steps" / name).write_text("years")
    done = recover(tmp_path, "run")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (rank / "steps").iterdir()) == ["000000.PARQUET", "1.parquet", "thesis.txt"]
    assert Asker(tmp_path).ask("/runs/run/").status_code == 200


def test_a_link_that_comes_while_a_rank_is_finished_leads_nowhere(tmp_path: Path) -> None:
    """Not even where nobody looks for links first, as the recorder does not."""
    rank = cut_off(tmp_path / "run")
    make_files(tmp_path / "victim")
    before = take_stock(tmp_path / "victim")
    (rank / "steps").rename(tmp_path / "aside")
    (rank / "steps").symlink_to(tmp_path / "victim")
    Recorder(rank).finish("crashed")
    assert take_stock(tmp_path / "victim") == before


@pytest.mark.parametrize("form", ["link", "dangling", "hard link", "pipe"])
def test_the_count_of_tries_is_written_into_no_file_of_others(tmp_path: Path, form: str) -> None:
    folder, other = tmp_path / "0" / ("0" * 16), tmp_path / "thesis.tex"
    folder.mkdir(parents=True)
    if form == "pipe":
        os.mkfifo(folder / "tries")
    elif form == "dangling":
        (folder / "tries").symlink_to(tmp_path / "new")
    else:
        other.write_text("mine")
        (os.symlink if form == "link" else os.link)(other, folder / "tries")
    first, second = waiting.count_try(folder), waiting.count_try(folder)
    assert second == first + 1
    assert not (tmp_path / "new").exists()
    assert not other.exists() or other.read_text() == "mine"
