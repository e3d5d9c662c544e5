"""Runs that the tests of views read."""

from __future__ import annotations

import pytest

from collector.notebook.run import Run, open_run
from collector.traces.importing import import_trace
from tests.support.runs import build_run
from tests.support.traces import find_sample


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(build_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def device_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    sample = find_sample("resnet50_v100_workers0.pt.trace.json.gz")
    return open_run(import_trace(sample, tmp_path_factory.mktemp("imported") / "run").path)
