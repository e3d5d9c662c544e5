"""What another process does to files that are open is an error at most: the server does not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from profiler_server.timeline.lane_file import ColumnFile, ColumnWriter
from profiler_server.timeline.scratch import Scratch

KINDS = (np.int64, np.uint32)
TO_CUT = """
import json, os, sys
from pathlib import Path
from profiler_server.timeline.cache import CACHE_FOLDER
from tests.support.asking import Asker
from tests.support.panorama import PANORAMA

base = Path(sys.argv[1])
PANORAMA["rich"](base / "rich")
asker = Asker(base)
timeline = "/api/v1/runs/rich/timeline"
meta = asker.ask(f"{timeline}/meta").json()
tiles = [f"tile?level={meta['rawLevel']}&number=0", f"tile?level={meta['topLevel']}&number=0"]
asks = [*tiles, "search?q=a", "slice?id=3", f"slice?id={meta['slices'] - 1}", "export"]
whole = {ask: asker.ask(f"{timeline}/{ask}") for ask in asks}
names = sorted(path.name for path in base.rglob(f"{CACHE_FOLDER}/*/*"))
for number, name in enumerate(names):
    for ask in asks[number % 3 :: 3]:
        asker.app.state.services.store._entries.clear()
        (path,) = base.rglob(f"{CACHE_FOLDER}/*/{name}")
        os.truncate(path, 0)
        answer = asker.ask(f"{timeline}/{ask}")
        if ask != "export":
            assert (answer.status_code, answer.content) == (whole[ask].status_code, whole[ask].content), (name, ask)
print(len(names), "files cut")
"""


def test_a_cache_that_is_cut_while_it_is_open_is_built_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TO_CUT, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert int(done.stdout.split()[0]) >= 7


def write_lanes(path: Path, sizes: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    chance = np.random.default_rng(5)
    lanes = [
        (np.sort(chance.integers(0, 9999, size)), chance.integers(0, 99, size).astype(np.uint32)) for size in sizes
    ]
    with ColumnWriter(path, KINDS) as writer:
        for lane in lanes:
            writer.write(lane)
    return lanes


def test_columns_are_read_as_they_were_written(tmp_path: Path) -> None:
    lanes = write_lanes(tmp_path / "a.lanes", [5, 0, 20_001, 1])
    file = ColumnFile(tmp_path / "a.lanes", KINDS)
    assert file.counts == [5, 0, 20_001, 1]
    chance = np.random.default_rng(6)
    for number, lane in enumerate(lanes):
        for column, values in enumerate(lane):
            assert file.read(number, column, 0, len(values)).tolist() == values.tolist()
            rows = chance.integers(0, len(values), 3000) if len(values) else np.zeros(0, np.int64)
            assert file.pick(number, column, rows).tolist() == values[rows].tolist()
        for at in (-1, 0, *lane[0][:50].tolist(), 4321, 9999, 10**15):
            assert file.find_start(number, at) == np.searchsorted(lane[0], at, "left")


@pytest.mark.parametrize("left", [0, 1, 1000])
def test_a_file_that_was_cut_is_an_error_that_names_it(tmp_path: Path, left: int) -> None:
    write_lanes(tmp_path / "a.lanes", [3000])
    file = ColumnFile(tmp_path / "a.lanes", KINDS)
    os.truncate(tmp_path / "a.lanes", left)
    with pytest.raises(OSError, match=r"shorter than it was written.*a\.lanes"):
        file.read(0, 1, 0, 3000)


def test_the_room_of_a_column_is_taken_before_it_is_written_and_nobody_can_cut_it(tmp_path: Path) -> None:
    with Scratch(tmp_path / "scratch") as scratch:
        column = scratch.new_column("a", np.int64, 100_000)
        found = os.fstat(scratch._files["a"].fileno())
        assert (found.st_size, found.st_nlink) == (800_000, 0)
        assert found.st_blocks * 512 >= 800_000
        column[:] = 7
        assert scratch.new_column("a", np.int64, 150_000)[[0, 99_999, 100_000, 149_999]].tolist() == [7, 7, 0, 0]
        assert list((tmp_path / "scratch").iterdir()) == []
