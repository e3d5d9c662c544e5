"""The catalog: what it finds, what it refuses, what it reads again, and what it keeps on disk."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.format.finding import BASE_ID, find_run
from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import LinkedRunError, RunNotFoundError, TableMissingError
from profiler_server.derive import records
from profiler_server.derive.records import FILE_NAME
from profiler_server.store import catalog as catalog_module
from profiler_server.store.catalog import Catalog
from profiler_server.store.headline import Headline, read_headline
from tests.support.live import edit_run
from tests.support.must import must
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import RunPlan, build_run
from tests.support.waiting import wait_for

SHORT = RunPlan(steps=14, operators=False)


@pytest.fixture
def always_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "SCAN_INTERVAL_S", -1.0)


def list_ids(catalog: Catalog) -> list[str]:
    return [entry.id for entry in catalog.list_runs().runs]


def test_lists_runs_at_any_depth_newest_first(tmp_path: Path) -> None:
    for index, name in enumerate(("old", "team/a/new", "middle")):
        build_run(tmp_path / name, SHORT)
        edit_run(tmp_path / name, created_unix_ns=(0, 9, 5)[index])
    assert list_ids(Catalog(tmp_path)) == ["team/a/new", "middle", "old"]


def test_a_base_dir_that_is_a_run_has_an_id_of_its_own(tmp_path: Path) -> None:
    build_run(tmp_path, SHORT)
    catalog = Catalog(tmp_path)
    assert list_ids(catalog) == [BASE_ID]
    assert catalog.open(BASE_ID).path == tmp_path.resolve()


def test_a_change_of_the_step_is_clear_only_beyond_noise_and_between_runs_of_some_length(tmp_path: Path) -> None:
    plans = {
        "long-1": (60, 64.0),
        "long-2": (60, 66.0),
        "long-3": (60, 96.0),
        "short-1": (20, 64.0),
        "short-2": (20, 96.0),
    }
    for number, (name, (steps, forward_ms)) in enumerate(plans.items()):
        build_run(tmp_path / name, RunPlan(steps=steps, operators=False, phases_ms={"forward": forward_ms}))
        edit_run(tmp_path / name, created_unix_ns=number)
    found = {run.id: run.delta_is_clear for run in Catalog(tmp_path).list_runs().runs}
    assert found == {"long-1": False, "long-2": False, "long-3": True, "short-1": False, "short-2": False}


def test_where_runs_of_a_script_always_differ_a_change_is_clear_only_beyond_that(tmp_path: Path) -> None:
    for number, forward_ms in enumerate((64.0, 90.0, 60.0, 88.0, 64.0, 90.0, 300.0)):
        build_run(tmp_path / f"cnn-{number}", RunPlan(steps=60, operators=False, phases_ms={"forward": forward_ms}))
        edit_run(tmp_path / f"cnn-{number}", created_unix_ns=number)
    runs = Catalog(tmp_path).list_runs().runs
    # Until there are four changes, each counts for itself.
    assert [run.delta_is_clear for run in reversed(runs)] == [False, True, True, True, True, False, True]


def test_a_mean_that_went_the_other_way_than_the_median_is_told_and_makes_the_change_unclear(tmp_path: Path) -> None:
    for number, name in enumerate(("cnn-1", "cnn-2")):
        build_run(tmp_path / name, RunPlan(steps=100, operators=False, phases_ms={"forward": 64.0 - 12.0 * number}))
        edit_run(tmp_path / name, created_unix_ns=number)
    faster = must(Catalog(tmp_path).list_runs().find("cnn-2"))
    assert (faster.delta_is_clear, faster.mean_delta_frac) == (True, None)
    rank = open_run(tmp_path / "cnn-2").rank(0)
    rows = rank.table("steps").to_pylist()
    for row in rows:
        row["forward_ns"] += 400_000_000 if row["step"] % 10 == 0 else 0
    lay_end_to_end(rows)
    write_rows(rank.folder, "steps", rows)
    stalled = must(Catalog(tmp_path).list_runs().find("cnn-2"))
    assert stalled.delta_frac == pytest.approx(-12 / 64, abs=0.01)
    assert stalled.mean_delta_frac == pytest.approx(28 / 64, abs=0.05)
    assert not stalled.delta_is_clear


def test_imported_traces_are_not_set_against_each_other(tmp_path: Path) -> None:
    for name in ("rank_0", "rank_1"):
        build_run(tmp_path / name, SHORT)
        edit_run(tmp_path / name, source="kineto")
    assert [entry.previous_id for entry in Catalog(tmp_path).list_runs().runs] == [None, None]


def break_manifest(run: Path) -> None:
    layout.run_file(run).write_text("{ no json")


def make_newer(run: Path) -> None:
    edit_run(run, schema_version=99)


def link_out(run: Path) -> None:
    outside = run.parent.parent / "outside.json"
    shutil.move(layout.run_file(run), outside)
    layout.run_file(run).symlink_to(outside)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(break_manifest, "is damaged"), (make_newer, "upgrade Stepscope"), (link_out, "run.json is a link")],
)
def test_an_unreadable_run_is_listed_with_why_and_harms_no_other(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    base = tmp_path / "base"
    build_run(base / "good", SHORT)
    build_run(base / "bad", SHORT)
    damage(base / "bad")
    listing = Catalog(base).list_runs()
    assert [entry.id for entry in listing.runs] == ["good"]
    assert [entry.id for entry in listing.unreadable] == ["bad"]
    assert reason in listing.unreadable[0].reason


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    build_run(tmp_path / "outside/run", SHORT)
    (tmp_path / "base").mkdir()
    (tmp_path / "base/link").symlink_to(tmp_path / "outside")
    (tmp_path / "base/circle").symlink_to(tmp_path / "base")
    catalog = Catalog(tmp_path / "base")
    assert list_ids(catalog) == []
    with pytest.raises(RunNotFoundError):
        catalog.open("link/run")


def test_ids_that_lead_elsewhere_open_nothing(tmp_path: Path) -> None:
    build_run(tmp_path / "outside", SHORT)
    build_run(tmp_path / "base/good", SHORT)
    catalog = Catalog(tmp_path / "base")
    ids = ("", ".", "..", "../outside", "a/../../outside", "/etc", "a//b", "a/", "a\0b", "..\\outside", "good/profiler")
    for run_id in (*ids, "x" * 5000):
        with pytest.raises(RunNotFoundError):
            catalog.open(run_id)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path) -> None:
    build_run(tmp_path / "good", SHORT)
    (tmp_path / "secret").mkdir(mode=0)
    listing = Catalog(tmp_path).list_runs()
    assert [entry.id for entry in listing.unreadable] == ["secret"]


@pytest.mark.usefixtures("always_scan")
def test_new_grown_and_vanished_runs_are_noticed(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    assert list_ids(catalog) == []
    build_run(tmp_path / "a", SHORT)
    assert catalog.list_runs().runs[0].headline.steps == 14
    time.sleep(0.01)
    build_run(tmp_path / "a", RunPlan(steps=20, operators=False))
    assert catalog.list_runs().runs[0].headline.steps == 20
    shutil.rmtree(tmp_path / "a")
    assert list_ids(catalog) == []


@pytest.mark.usefixtures("always_scan")
def test_an_unchanged_run_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(tmp_path / "a", SHORT)
    catalog = Catalog(tmp_path)
    first = catalog.list_runs().runs
    monkeypatch.setattr(catalog_module, "read_headline", lambda run: pytest.fail("read again"))
    assert catalog.list_runs().runs == first


def test_a_rank_that_cannot_be_read_leaves_the_figures_of_the_others(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=14, ranks=2))
    layout.table_file(layout.rank_path(tmp_path / "a", 1), "steps").write_bytes(b"PAR1 cut off")
    entry = Catalog(tmp_path).list_runs().runs[0]
    assert entry.headline.steps == 14
    assert entry.headline.ranks == (0, 1)


def test_finds_a_run_by_name_and_lists_those_that_share_one(tmp_path: Path) -> None:
    for place in ("x/one", "y/one", "y/three"):
        build_run(tmp_path / place, SHORT)
    edit_run(tmp_path / "y/three", name="digits")
    assert find_run(tmp_path, "x/one") == tmp_path / "x/one"
    assert find_run(tmp_path, "three") == find_run(tmp_path, "digits") == tmp_path / "y/three"
    with pytest.raises(
        RunNotFoundError, match=r"2 runs below .* are called 'one'; give the id of one of them: x/one, y/one"
    ):
        find_run(tmp_path, "one")
    with pytest.raises(RunNotFoundError, match="There is no run 'two'"):
        find_run(tmp_path, "two")


def test_folders_whose_names_are_not_utf_8_are_left_out_and_the_list_says_so(tmp_path: Path) -> None:
    build_run(tmp_path / "a", SHORT)
    os.rename(tmp_path / "a", os.fsencode(tmp_path) + b"/\xff")
    listing = Catalog(tmp_path).list_runs()
    assert listing.runs == ()
    assert ["names that are not UTF-8" in entry.reason for entry in listing.unreadable] == [True]


def test_a_pipe_in_place_of_a_manifest_does_not_hold_the_list(tmp_path: Path) -> None:
    build_run(tmp_path / "piped", SHORT)
    manifest = layout.rank_file(tmp_path / "piped", 0)
    manifest.unlink()
    os.mkfifo(manifest)
    assert list_ids(Catalog(tmp_path)) == ["piped"]
    with pytest.raises(TableMissingError, match="no regular file"):
        _ = Catalog(tmp_path).open("piped").rank(0).manifest


@pytest.mark.parametrize("inner", ["", "rank_0/steps.parquet"])
@pytest.mark.parametrize("place", ["outside", "base/outside"])
def test_a_run_with_a_link_inside_is_refused_by_name(tmp_path: Path, inner: str, place: str) -> None:
    build_run(tmp_path / "base/linked", SHORT)
    target = layout.profiler_path(tmp_path / "base/linked") / inner
    target.rename(tmp_path / place)
    target.symlink_to(tmp_path / place)
    catalog = Catalog(tmp_path / "base")
    with pytest.raises(LinkedRunError, match=f"{target.name} is a link.* replace it by a copy"):
        catalog.open("linked")
    assert f"{target} is a link" in catalog.list_runs().unreadable[0].reason


PATIENCE_S = 60.0


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three runs whose summaries have been kept."""
    monkeypatch.setattr(catalog_module, "WORTH_KEEPING", 1)
    for name in "abc":
        build_run(tmp_path / name, SHORT)
    Catalog(tmp_path).list_runs()
    wait_for((tmp_path / FILE_NAME).exists)
    return tmp_path


def count_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the name of each run that is read."""
    read: list[str] = []

    def note(run: Run) -> Headline:
        read.append(run.path.name)
        return read_headline(run)

    monkeypatch.setattr(catalog_module, "read_headline", note)
    return read


def test_the_next_server_lists_the_same_without_reading_a_run(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Catalog(base / ".." / base.name).list_runs()
    read = count_read(monkeypatch)
    assert Catalog(base).list_runs() == expected
    assert read == []


def test_only_a_run_whose_files_changed_is_read_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = count_read(monkeypatch)
    build_run(base / "b", RunPlan(steps=20, operators=False))
    entry = must(Catalog(base).list_runs().find("b"))
    assert entry.headline.steps == 20
    assert read == ["b"]


@pytest.mark.parametrize("damage", ["cut", "garbage", "code", "moved"])
def test_what_is_not_ours_or_damaged_is_read_anew(base: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = (base / FILE_NAME).read_bytes()
    (base / FILE_NAME).write_bytes({"cut": raw[:-9], "garbage": b"\x80" * 99}.get(damage, raw))
    if damage == "code":
        monkeypatch.setattr("profiler_server.derive.records.digest_code", lambda: "another version")
    if damage == "moved":
        base = base.rename(base.with_name("elsewhere"))
    read = count_read(monkeypatch)
    assert [entry.headline.steps for entry in Catalog(base).list_runs().runs] == [14, 14, 14]
    assert sorted(read) == ["a", "b", "c"]


def test_a_run_that_records_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "WORTH_KEEPING", 1)
    build_run(tmp_path / "done", SHORT)
    build_run(tmp_path / "going", RunPlan(steps=14, operators=False, state="recording"))
    Catalog(tmp_path).list_runs()
    wait_for((tmp_path / FILE_NAME).exists)
    read = count_read(monkeypatch)
    Catalog(tmp_path).list_runs()
    assert read == ["going"]


def test_summaries_lie_in_a_private_folder_where_the_base_directory_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(catalog_module, "WORTH_KEEPING", 1)
    base = tmp_path / "runs"
    build_run(base / "a", SHORT)
    (base / FILE_NAME).mkdir()  # takes the place of the file, also for root
    Catalog(base).list_runs()
    wait_for(lambda: any(tmp_path.glob(f"stepscope-*/*{FILE_NAME}")))
    read = count_read(monkeypatch)
    assert len(Catalog(base).list_runs().runs) == 1
    assert read == []


def test_few_runs_leave_no_file_behind(tmp_path: Path) -> None:
    build_run(tmp_path / "a", SHORT)
    catalog = Catalog(tmp_path)
    catalog.list_runs()
    catalog.list_runs()
    assert not (tmp_path / FILE_NAME).exists()
    assert records.FOLDER not in [path.name for path in layout.profiler_path(tmp_path / "a").iterdir()]


def test_runs_that_there_is_no_time_for_are_listed_without_figures_and_then_read(tmp_path: Path) -> None:
    for created_unix_ns, name in enumerate(("cnn-1", "cnn-2")):
        edit_run(build_run(tmp_path / name, SHORT), created_unix_ns=created_unix_ns)
    catalog = Catalog(tmp_path)
    first = catalog.list_runs(within_s=-1.0)
    assert (first.unread, len(first.runs)) == (2, 2)
    assert {run.is_read for run in first.runs} == {False}
    assert {run.delta_frac for run in first.runs} == {None}
    wait_for(lambda: not catalog.list_runs(within_s=-1.0).unread)
    full = catalog.list_runs(within_s=-1.0)
    assert [(run.id, run.headline.steps) for run in full.runs] == [("cnn-2", 14), ("cnn-1", 14)]
    assert full.runs[0].previous_id == "cnn-1"


def list_beside_good(tmp_path: Path, text: str) -> tuple[list[str], list[str]]:
    """Return the ids that are listed and the ids that are refused."""
    build_run(tmp_path / "good", RunPlan(steps=4))
    layout.run_file(build_run(tmp_path / "bad", RunPlan(steps=4))).write_text(text, encoding="utf-8")
    listing = Catalog(tmp_path).list_runs()
    return [entry.id for entry in listing.runs], [entry.id for entry in listing.unreadable]


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000])
def test_what_is_no_manifest_is_refused_alone(tmp_path: Path, text: str) -> None:
    assert list_beside_good(tmp_path, text) == (["good"], ["bad"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created_unix_ns", 10**40),
        ("name", 5),
        ("epoch_unix_ns", 2**63),
    ],
)
def test_field_of_the_wrong_kind_is_refused_alone(tmp_path: Path, field: str, value: Any) -> None:
    build_run(tmp_path / "model", RunPlan(steps=4))
    manifest = json.loads(layout.run_file(tmp_path / "model").read_text(encoding="utf-8"))
    layout.run_file(tmp_path / "model").unlink()
    assert list_beside_good(tmp_path, json.dumps({**manifest, field: value})) == (["good"], ["bad"])


def test_a_run_between_walk_and_reading_may_vanish(tmp_path: Path) -> None:
    build_run(tmp_path / "a", SHORT)
    build_run(tmp_path / "b", SHORT)
    catalog = Catalog(tmp_path)
    catalog.list_runs()
    shutil.rmtree(tmp_path / "a")
    assert list_ids(catalog) == ["b"]
