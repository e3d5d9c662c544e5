"""The critical path on the lanes of a timeline."""

from __future__ import annotations

from pathlib import Path

from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.timeline.cache import find_timelines
from profiler_server.timeline.view import view_path
from tests.support.windows import build_window, compute


def test_each_piece_lies_on_the_lane_of_its_slice(tmp_path: Path) -> None:
    rank = build_window(tmp_path, compute, steps=3).rank()
    path = find_critical_path(rank)
    timeline = find_timelines().open(rank)
    found = view_path(timeline, path)
    assert path is not None
    assert len(found["starts"]) == len(found["ends"]) == len(found["lanes"]) == len(path.kind)
    tracks = [timeline.index.lanes[lane].track if lane >= 0 else -1 for lane in found["lanes"]]
    assert tracks == path.track.tolist()
    assert found["starts"][0] + timeline.index.origin_ns == path.start_ns[0]


def test_without_a_path_nothing_is_drawn(tmp_path: Path) -> None:
    timeline = find_timelines().open(build_window(tmp_path, lambda machine: machine.work(500.0), steps=3).rank())
    assert view_path(timeline, None) == {"starts": [], "ends": [], "lanes": []}
