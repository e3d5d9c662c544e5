from __future__ import annotations

from pathlib import Path

from tests.fuzz.traces import run


def test_mutated_traces_give_tables_or_our_own_error(tmp_path: Path) -> None:
    assert 50 < run(250, seed=7, keep=tmp_path / "case.json") < 250
