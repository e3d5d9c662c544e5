"""Timelines of tables that are damaged, out of order or out of range."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format import parts
from collector.format.schema import layout
from collector.format.schema.errors import TableBrokenError
from profiler_server.timeline.cache import CACHE_FOLDER
from tests.support.linked_slices import linked_rows
from tests.unit.timeline.rows import build_slices_run, make_slice, open_timeline


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    rows = [make_slice(i, 1000 * ((i * 37) % 100), 900) for i in range(100)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    lanes = [i for i, entry in enumerate(timeline.index.lanes) if entry.track == 1]
    assert len(lanes) == 1
    held = timeline.raw.cut(lanes[0], 0, 100)
    assert sorted(held.id.tolist()) == list(range(100))
    assert (held.start[1:] > held.start[:-1]).all()


def test_slices_of_a_track_that_was_not_declared_are_shown(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    parts.find_files(run.rank(0).folder, "tracks")[0].unlink()
    timeline = open_timeline(run.rank(0))
    assert {"track 1", "track 8"} <= {track.name for track in timeline.index.tracks}


def test_slices_that_cannot_be_opened_are_left_out(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    file = layout.table_file(run.rank(0).folder, "slices")
    file.write_bytes(file.read_bytes()[:-40])
    assert open_timeline(run.rank(0)).index.table_rows == 0


def test_a_table_that_is_damaged_further_in_is_named(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    file = layout.table_file(run.rank(0).folder, "slices")
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 4] = b"\xff" * (len(data) // 4 - 4)
    file.write_bytes(bytes(data))
    with pytest.raises(TableBrokenError, match="slices"):
        open_timeline(run.rank(0))
    assert list((run.rank(0).folder / CACHE_FOLDER).iterdir()) == []


@pytest.mark.parametrize(
    "odd", [{"start_ns": 2**63 - 1}, {"start_ns": -(2**63)}, {"duration_ns": 2**63 - 1}, {"track": 2**31 - 1}]
)
def test_a_time_or_a_track_that_can_be_none_is_damage(tmp_path: Path, odd: dict[str, int]) -> None:
    run = build_slices_run(tmp_path / "run", [*linked_rows(), make_slice(9, 1, 1) | odd])
    with pytest.raises(TableBrokenError, match=f"slices.*{next(iter(odd))} holds"):
        open_timeline(run.rank(0))
    with pytest.raises(TableBrokenError, match=f"slices.*{next(iter(odd))} holds"):
        run.rank(0).table("slices")


def test_slices_at_both_ends_of_what_can_be_are_drawn(tmp_path: Path) -> None:
    rows = [make_slice(0, -(2**61), 2**61), make_slice(1, 2**61, 2**61)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    assert {0, 1} <= set(timeline.cut_tile(timeline.index.top_level, 0).bins.id.tolist())
