"""Record a small training in this process, without a sidecar beside it, and read the steps that were found."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.format.phases import PHASE_NAMES
from collector.notebook.run import Run
from collector.options import parse_options
from collector.session.recording import Recording

Row = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """The rows of `steps`. Everything else is in `run`."""

    run: Run
    rows: list[Row]

    @property
    def kinds(self) -> dict[str, int]:
        """How many training steps and evaluation batches there are."""
        counts = Counter(row["kind"] for row in self.rows)
        return {kind: counts[kind] for kind in ("train", "eval") if counts[kind]}

    @property
    def train(self) -> list[Row]:
        return [row for row in self.rows if row["kind"] == "train"]

    def count(self, column: str) -> list[int]:
        """The values of a column over the training steps."""
        return [row[column] for row in self.train]


def record(path: Path, loop: Callable[[], object], **options: Any) -> Recorded:
    """Run the loop while it is recorded; an exception passes through after the signals are removed."""
    recording = Recording(path, parse_options({"window": None, **options}), with_sidecar=False)
    recording.resume()
    try:
        loop()
    finally:
        recording.finish()
    run = Run(path)
    return Recorded(run, run.table("steps").to_pylist())


def assert_sound(recorded: Recorded) -> None:
    """Check what holds for every run: parts equal the whole, no hole between rows, steps counted from 1."""
    rows = recorded.rows
    for row in rows:
        assert sum(row[f"{name}_ns"] for name in PHASE_NAMES) == row["duration_ns"], row
        assert min(row[f"{name}_ns"] for name in PHASE_NAMES) >= 0, row
    for earlier, later in itertools.pairwise(rows):
        assert earlier["start_ns"] + earlier["duration_ns"] == later["start_ns"]
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert recorded.count("step") == list(range(1, len(recorded.train) + 1))
    assert "steps_lost" not in [warning.code for warning in recorded.run.rank().manifest.warnings]
