"""The details of a slice, and what it leads to."""

from __future__ import annotations

from pathlib import Path

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.timeline.details import describe_slice
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
