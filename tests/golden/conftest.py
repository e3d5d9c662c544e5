"""Runs of real traces, each imported once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import Run
from collector.traces.importing import import_trace
from tests.support.traces import find_sample


class Samples:
    """Runs of samples by name, each made when it is first asked for; the test is skipped where the sample is not here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Run] = {}

    def __getitem__(self, name: str) -> Run:
        if name not in self._made:
            self._made[name] = import_trace(find_sample(f"{name}.json.gz"), self._folder / name)
        return self._made[name]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return Samples(tmp_path_factory.mktemp("samples"))
