from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.asking import Asker
from tests.support.runs import RunPlan, build_run, slow_loader_plan


@pytest.fixture(scope="session")
def web_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that no test changes."""
    base = tmp_path_factory.mktemp("web-runs")
    build_run(base / "healthy")
    build_run(base / "team/slow", slow_loader_plan("transform"))
    build_run(base / "ranks", RunPlan(steps=14, ranks=3))
    build_run(base / "crashed", RunPlan(steps=14, state="crashed", operators=False))
    return base


@pytest.fixture(scope="session")
def asker(web_base: Path) -> Asker:
    return Asker(web_base)
