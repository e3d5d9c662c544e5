"""The details of a slice, and what it leads to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.timeline.details import describe_slice
from profiler_server.timeline.lane_file import ColumnFile, ColumnWriter
from profiler_server.timeline.scratch import Scratch
from profiler_server.timeline.search import search
from profiler_server.timeline.store import Timeline
from profiler_server.timeline.view import view_details
from tests.support.jobs import JobPlan, write_job
from tests.support.linked_slices import linked_rows
from tests.support.must import must
from tests.unit.timeline.rows import build_slices_run, make_slice, open_timeline


def test_details_lead_from_kernel_to_launch_and_back(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    kernel, launch, operator = (describe_slice(timeline, sid) for sid in (2, 1, 0))
    assert kernel is not None
    assert launch is not None
    assert operator is not None
    assert [(link.relation, link.place.sid) for link in kernel.links] == [("launched by", 1)]
    assert ("launches", 2) in [(link.relation, link.place.sid) for link in launch.links]
    assert [(link.relation, link.place.sid) for link in operator.links] == [("launches", 2), ("backward is", 3)]
    assert (operator.args["Input Dims"], operator.kind_count, kernel.args["operator"]) == ([[2, 3]], 1, "aten::mm")
    assert len(view_details(kernel)["whole"]) == 10_000


def test_a_backward_leads_to_the_last_forward_operator_of_its_number(tmp_path: Path) -> None:
    rows = [
        make_slice(0, 0, 500, name="aten::view", sequence=7),
        make_slice(1, 1000, 500, name="aten::linear", sequence=7),
        make_slice(2, 1100, 300, name="aten::addmm", sequence=7, depth=1, parent=1),
        make_slice(3, 5000, 900, name="autograd::engine::evaluate_function: AddmmBackward0", sequence=7, track=2),
        make_slice(4, 5100, 700, name="AddmmBackward0", sequence=7, track=2, depth=1, parent=3),
    ]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    links = {sid: find_linked(timeline, sid) for sid in range(5)}
    assert links[0] == []
    assert links[1] == [("backward is", 3)]
    assert links[2] == [("inside of", 1), ("backward is", 3)]
    assert links[3] == [("backward of", 2)]
    assert links[4] == [("inside of", 3), ("backward of", 2)]


def find_linked(timeline: Timeline, sid: int) -> list[tuple[str, int]]:
    details = must(describe_slice(timeline, sid))
    return [(link.relation, link.place.sid) for link in details.links]


def test_details_of_a_derived_slice_show_the_row_it_stands_for(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    found = must(search(timeline, "transform", (-1, -1), "next").hit)
    details = must(describe_slice(timeline, found.sid))
    assert details.args["batch"] == 0


def test_a_collective_has_the_bytes_of_its_own_row_where_a_window_saw_those_before(tmp_path: Path) -> None:
    run = write_job(tmp_path / "run", JobPlan(ranks=1, steps=6))
    folder = layout.rank_path(run, 0)
    rows = open_run(run).rank(0).table("collectives").to_pylist()
    seen = [{**row, "bytes": 1000 + at, "held_ns": None if at < 3 else 5} for at, row in enumerate(rows)]
    parts.write_table(parts.build_table_from_rows("collectives", seen), layout.table_file(folder, "collectives"))
    timeline = open_timeline(open_run(run).rank(0))
    found = search(timeline, "allreduce", (-1, -1), "next")
    assert (found.count, found.number) == (3, 1)
    details = must(describe_slice(timeline, found.hit.sid) if found.hit else None)
    assert details.args["bytes"] == 1003


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
