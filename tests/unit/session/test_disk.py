"""A finished run leaves its tables and nothing else, and earlier runs in its place do not pile up."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from collector.format.run import Run
from collector.format.schema.layout import events_path, rank_path
from collector.session.closing import measure_headroom
from collector.session.place import MOST_EARLIER
from collector.sidecar.process import recover_run
from tests.support import shapes
from tests.support.recording import record


def train() -> None:
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for _ in range(2):
        shapes.train_on(model, optimizer, shapes.loader())


def test_a_finished_run_holds_tables_only_and_its_window_can_be_read(tmp_path: Path) -> None:
    recorded = record(tmp_path, train, window=(5, 3))
    folder = rank_path(tmp_path, 0)
    assert {path.suffix for path in folder.iterdir()} == {".parquet", ".json"}
    (window,) = recorded.run.rank().manifest.windows
    assert (window.first_step, window.trace_file) == (5, None)
    assert len(recorded.run.table("operators")) > 0
    assert recover_run(tmp_path) == {0: "complete"}


def test_what_the_tables_were_made_from_stays_where_that_is_asked_for(tmp_path: Path) -> None:
    recorded = record(tmp_path, train, window=(5, 3), keep_events=True)
    folder = rank_path(tmp_path, 0)
    assert (events_path(folder) / "words.ring").is_file()
    (window,) = recorded.run.rank().manifest.windows
    assert window.trace_file is not None
    assert (folder / window.trace_file).is_file()


def test_only_the_last_runs_that_were_set_aside_are_kept_and_the_removal_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = tmp_path / "earlier"
    (earlier / "mine").mkdir(parents=True)
    for number in range(MOST_EARLIER):
        (earlier / f"20200101-00000{number}" / "profiler").mkdir(parents=True)
        (earlier / f"20200101-00000{number}" / "profiler" / "run.json").write_text("{}")
    record(tmp_path, shapes.plain)
    monkeypatch.setattr(time, "strftime", lambda form: "20210101-000000")
    assert len(record(tmp_path, shapes.plain).train) == 10
    kept = sorted(path.name for path in earlier.iterdir())
    assert kept == ["20200101-000001", "20200101-000002", "20210101-000000", "mine"]
    assert [message for message in caplog.messages if "20200101-000000 was removed" in message]
    assert Run(earlier / "20210101-000000").rank(0).count_steps() == 10


MB = 1 << 20
NAMES = {
    "v2": ("0::/a/b\n", "a", "memory.max", "memory.current", "inactive_file"),
    "v1": ("3:cpu:/x\n7:memory:/a/b\n", "memory/a", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}  # fmt: skip


def write_group(folder: Path, version: str, most: str, used_mb: int, cached_mb: int) -> None:
    _, _, limit, usage, cache = NAMES[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit).write_text(f"{most}\n")
    (folder / usage).write_text(f"{used_mb * MB}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{cache} {cached_mb * MB}\nother 5\n")


@pytest.mark.parametrize("version", NAMES)
def test_the_narrowest_container_counts_and_its_cached_files_do_not(tmp_path: Path, version: str) -> None:
    processes, groups = tmp_path / "cgroup", tmp_path / "groups"
    processes.write_text(NAMES[version][0])
    outer = groups / NAMES[version][1]
    write_group(outer, version, str(300 * MB), 250, 20)
    write_group(outer / "b", version, "max" if version == "v2" else str(1 << 60), 240, 5)
    assert measure_headroom(processes, groups) == 70 * MB
    write_group(outer / "b", version, str(260 * MB), 240, 5)
    assert measure_headroom(processes, groups) == 25 * MB


def test_without_a_container_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 7 * MB})())
    assert measure_headroom(tmp_path / "none", tmp_path / "groups") == 7 * MB
