"""The first list of many runs: summaries are kept on disk, and what was never read does not hold the list."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.format.run import Run
from collector.format.schema import layout
from profiler_server.derive import records
from profiler_server.derive.records import FILE_NAME
from profiler_server.store import catalog as catalog_module
from profiler_server.store.catalog import Catalog
from profiler_server.store.headline import Headline, read_headline
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace

SHORT = RunPlan(steps=14, operators=False)
PATIENCE_S = 60.0


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three runs whose summaries have been kept."""
    monkeypatch.setattr(catalog_module, "WORTH_KEEPING", 1)
    for name in "abc":
        build_run(tmp_path / name, SHORT)
    Catalog(tmp_path).list_runs()
    wait_until((tmp_path / FILE_NAME).exists)
    return tmp_path


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    entry = Catalog(base).list_runs().find("b")
    assert entry is not None
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
    wait_until((tmp_path / FILE_NAME).exists)
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
    wait_until(lambda: any(tmp_path.glob(f"stepscope-*/*{FILE_NAME}")))
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
        file = layout.run_file(build_run(tmp_path / name, SHORT))
        file.write_text(json.dumps(json.loads(file.read_text()) | {"created_unix_ns": created_unix_ns}))
    write_trace(tmp_path / "plain.json", training_steps())
    catalog = Catalog(tmp_path)
    first = catalog.list_runs(within_s=-1.0)
    assert (first.unread, len(first.runs), first.traces) == (2, 2, ())
    assert {run.is_read for run in first.runs} == {False}
    assert {run.delta_frac for run in first.runs} == {None}
    wait_until(lambda: not catalog.list_runs(within_s=-1.0).unread)
    full = catalog.list_runs(within_s=-1.0)
    assert [(run.id, run.headline.steps) for run in full.runs] == [("cnn-2", 14), ("cnn-1", 14)]
    assert full.runs[0].previous_id == "cnn-1"
    assert len(full.traces) == 1
