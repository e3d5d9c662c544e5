"""What tests of the session share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector import Profiler
from collector.session.beside import Beside


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no recorder process started: analyse() does its work here."""
    monkeypatch.setattr(Beside, "start", lambda self: None)


@pytest.fixture
def profiler(tmp_path: Path, alone: None) -> Iterator[Profiler]:
    profiler = Profiler(tmp_path / "run", window=None)
    yield profiler
    profiler.analyse()
