"""Batches from memory, made by the training process: most of the wait may be the DataLoader itself, and no stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.page import PageRequest
from profiler_server.pages import data
from tests.support.cases import Plant, build_case_run, plan_of

PLAN = plan_of(0, data_wait=0.352, h2d=0.0, forward=0.6, backward=0.0, optimizer=0.05, tail=0.0, gap=0.0)


def plant(read_ms: float, collate_ms: float) -> Plant:
    timed = replace(PLAN, read_ms=read_ms, transform_ms=0.0, collate_ms=collate_ms)
    return Plant(timed, edit_stages=lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["duration_ns"]]))


@pytest.mark.parametrize(("read_ms", "collate_ms"), [(0.082, 0.060), (0.060, 0.082)])
def test_no_stage_is_blamed_where_the_stages_take_less_than_the_rest_of_the_wait(
    read_ms: float, collate_ms: float, tmp_path: Path
) -> None:
    run = build_case_run(tmp_path / "run", plant(read_ms, collate_ms))
    found = diagnose(run, 0)
    assert (found.bound_by.kind, found.bound_by.stage) == ("input", None)
    assert "Of 352 µs for a batch, reading and collating take 142 µs" in found.sentence
    assert [entry.rule for entry in found.suggestions] == ["in_memory_fetch"]
    page = data.PAGE.build(PageRequest(run, "run", 0, (0,), {})).interval
    assert "Limited by the DataLoader itself" in [reading.title for reading in page.readings]


def test_a_stage_is_named_where_the_stages_make_up_the_wait(tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", plant(0.22, 0.1)), 0)
    assert (found.bound_by.kind, found.bound_by.stage) == ("input", "read")
    assert [entry.rule for entry in found.suggestions] == ["in_memory_fetch"]
