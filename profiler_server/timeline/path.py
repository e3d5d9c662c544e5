"""A path through the slices, laid on the lanes of a timeline."""

from __future__ import annotations

from typing import Any, Protocol

from collector.format.intervals import Ints
from profiler_server.timeline.store import Timeline


class Path(Protocol):
    """Pieces in order of time, since the run's epoch; track and depth are -1 where no slice stands."""

    @property
    def start_ns(self) -> Ints: ...
    @property
    def end_ns(self) -> Ints: ...
    @property
    def track(self) -> Ints: ...
    @property
    def depth(self) -> Ints: ...


def view_path(timeline: Timeline, path: Path | None) -> dict[str, Any]:
    """Return the pieces as columns, times since the origin; the lane of a piece without a slice is -1."""
    if path is None:
        return {"starts": [], "ends": [], "lanes": []}
    lanes: dict[tuple[int, int], int] = {}
    for number, lane in enumerate(timeline.index.lanes):
        lanes.setdefault((lane.track, lane.depth), number)
    origin = timeline.index.origin_ns
    places = zip(path.track.tolist(), path.depth.tolist(), strict=True)
    return {
        "starts": (path.start_ns - origin).tolist(),
        "ends": (path.end_ns - origin).tolist(),
        "lanes": [lanes.get(place, -1) for place in places],
    }
