"""A rank whose slices tests write by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import RankRun, open_run
from tests.support.runs import RunPlan, build_run
from tests.support.tables import edit_manifest


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    run = build_run(tmp_path / "run", RunPlan())
    edit_manifest(run, windows=())
    return open_run(run).rank(0)
