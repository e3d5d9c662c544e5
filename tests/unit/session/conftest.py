"""What tests of the session share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector import Profiler


@pytest.fixture
def profiler(tmp_path: Path) -> Iterator[Profiler]:
    profiler = Profiler(tmp_path / "run", window=None)
    yield profiler
    profiler.analyse()
