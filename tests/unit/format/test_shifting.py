"""Where a rank is moved to another epoch, all its times move."""

from __future__ import annotations

import pyarrow as pa

from collector.format.schema.manifest import RankManifest, Window
from collector.format.shifting import shift_manifest, shift_rows

LEAST = RankManifest(rank=0, host="", pid=1, state="complete", started_unix_ns=0, heartbeat_unix_ns=0)


def test_the_reading_of_a_window_moves_with_its_steps() -> None:
    read = Window(1, 2, 0, 40, read_start_ns=50, read_end_ns=60)
    manifest = RankManifest(**{**vars(LEAST), "windows": (read, Window(3, 3, 70, 80)), "recorded_until_ns": 90})
    moved = shift_manifest(manifest, 100)
    assert moved.windows == (Window(1, 2, 100, 140, read_start_ns=150, read_end_ns=160), Window(3, 3, 170, 180))
    assert moved.recorded_until_ns == 190
    assert shift_manifest(LEAST, 100) == LEAST


def test_starts_of_rows_move_and_lengths_stay() -> None:
    rows = pa.table({"start_ns": [1, 2], "duration_ns": [3, 4]})
    assert shift_rows(rows, -1).to_pydict() == {"start_ns": [0, 1], "duration_ns": [3, 4]}
