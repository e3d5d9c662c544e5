"""Parts of a table: merged while the run records, made one file at its end, never double and never out of order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from collector.format import parts
from collector.format.parts import (
    PARTS_PER_MERGE,
    build_table,
    find_files,
    join_parts,
    merge_parts,
    read_table,
    remove_parts,
    write_part,
)
from collector.format.stored_files import open_native


def write_parts(rank_folder: Path, first: int, count: int) -> None:
    for part in range(first, first + count):
        rows = build_table(
            "phases", {"step": [part], "index": [part], "phase": ["forward"], "start_ns": [0], "duration_ns": [1]}
        )
        write_part(rows, rank_folder, "phases", part)
        if (part + 1) % PARTS_PER_MERGE == 0:
            merge_parts(rank_folder, "phases")


def read_order(rank_folder: Path) -> list[int]:
    order: list[int] = read_table(rank_folder, "phases")["step"].to_pylist()
    return order


def test_weeks_of_parts_stay_few_and_in_order(tmp_path: Path) -> None:
    count = PARTS_PER_MERGE**2 + 2 * PARTS_PER_MERGE + 3
    write_parts(tmp_path, 0, count)
    assert len(find_files(tmp_path, "phases")) == 1 + 2 + 3
    assert read_order(tmp_path) == list(range(count))


def test_parts_that_a_merged_one_replaces_are_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(parts, "remove_file", lambda path: None)  # killed before the parts were removed
        write_parts(tmp_path, 0, PARTS_PER_MERGE)
    assert len(list((tmp_path / "phases").glob("0*.parquet"))) == PARTS_PER_MERGE + 1
    assert read_order(tmp_path) == list(range(PARTS_PER_MERGE))


def test_large_parts_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MERGED_BYTES", 1)
    write_parts(tmp_path, 0, PARTS_PER_MERGE)
    assert len(find_files(tmp_path, "phases")) == PARTS_PER_MERGE


def test_one_file_of_many_groups_holds_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROWS_PER_GROUP", 5)
    write_parts(tmp_path, 0, 23)
    join_parts(tmp_path, "phases")
    remove_parts(tmp_path, ["phases"])
    assert [path.name for path in tmp_path.iterdir()] == ["phases.parquet"]
    assert read_order(tmp_path) == list(range(23))


def test_tables_are_read_where_there_is_no_dev_fd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path, 0, 3)
    opened = pa.OSFile

    def refuse(path: str) -> pa.NativeFile:
        if path.startswith("/dev/fd/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return opened(path)

    monkeypatch.setattr(pa, "OSFile", refuse)
    assert read_order(tmp_path) == [0, 1, 2]
    link = tmp_path / "link.parquet"
    link.symlink_to(find_files(tmp_path, "phases")[0])
    with pytest.raises(FileNotFoundError, match="/dev/fd"):
        open_native(link)
