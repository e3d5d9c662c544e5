"""Write and read `profiler/control.json`, which orders a detailed window of a run while it records.

{"window": {"first": 500, "count": 5}} orders a detailed window of 5 steps from step 500, or from now on if step 500 has
passed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collector.format.schema.layout import control_file
from collector.format.schema.reading import read_small_text
from collector.format.schema.writing import replace_text

MOST_STEPS = 1000
"""The most steps of one window: its events are held in memory until it closes."""
MOST_FIRST = (1 << 36) - 1
MOST_BYTES = 65_536
_EXAMPLE = '{"window": {"first": 500, "count": 5}}'


@dataclass(frozen=True)
class WindowRequest:
    """A request for a detailed window (steps recorded with torch.profiler) of `count` steps from step `first`."""

    first: int
    count: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def build_request(first: Any, count: Any) -> WindowRequest:
    if not (_is_number(first) and 0 <= first <= MOST_FIRST):
        raise ValueError(f"first takes the number of a step, not {first!r:.80}")
    if not (_is_number(count) and 1 <= count <= MOST_STEPS):
        raise ValueError(f"count takes 1 to {MOST_STEPS} steps, not {count!r:.80}")
    return WindowRequest(first, count)


def read_control(run_path: Path) -> WindowRequest:
    """Read control.json of a run. OSError if the file is missing; ValueError names a mistake in it."""
    text = read_small_text(control_file(run_path))
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES} bytes; write {_EXAMPLE}")
    try:
        window = json.loads(text)["window"]
        if isinstance(window, list):
            first, count = window
        else:
            first, count = window["first"], window["count"]
        return build_request(first, count)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{error!r}; write {_EXAMPLE}") from None


def write_control(run_path: Path, request: WindowRequest) -> None:
    """Write control.json, whole or not at all. OSError passes through."""
    replace_text(control_file(run_path), json.dumps({"window": asdict(request)}) + "\n")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
