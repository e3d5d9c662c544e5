"""Rows for slices of one thread that overlap without nesting: a viewer drops those that stand on one row."""

from __future__ import annotations


def spread_overlapping(starts: list[int], ends: list[int]) -> list[int]:
    """Put each span on the first lane where it stands inside or after what is open there. Starts are in order."""
    open_ends: list[list[int]] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((n for n, stack in enumerate(open_ends) if _has_room(stack, start, end)), len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes.append(lane)
    return lanes


def _has_room(open_ends: list[int], start: int, end: int) -> bool:
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]
