"""What an imported trace lacks is said in one line, on the Overall page and in the report; so is that it lacks nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.traces import import_trace
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.asking import Asker
from tests.support.runs import build_run
from tests.support.traces import Event, call, kernel, operator, training_steps, write_trace

PAIRS = [event for at in range(10, 500, 10) for event in (call(at, 1, at), kernel("gemm", at + 5, 4, at))]
COMPLETE = "complete: every launch has its work, every event is there once and has its length"
CASES: dict[str, list[Event]] = {
    COMPLETE: PAIRS,
    "not complete: none of 49 launch calls has a kernel": PAIRS[::2],
    "not complete: 1 event listed twice, counted once": [*PAIRS, PAIRS[0]],
    "last longer than all the rest, as an overflow makes them": [*PAIRS, call(505, 1, 505), kernel("k", 510, 4e6, 505)],
    "the device was recorded from 6.0 ms": [
        *(call(at, 1, at) for at in range(1000, 7001, 50)),
        kernel("k", 7010, 4, 7000),
    ],
    "or a clock that was reset": [operator("aten::mm", 0, 5), operator("aten::mm", 3.6e9, 5)],
}


@pytest.mark.parametrize("line", CASES)
def test_the_line_stands_on_the_first_page_and_in_the_report(tmp_path: Path, line: str) -> None:
    trace = write_trace(tmp_path / "trace.json", CASES[line])
    run = import_trace(trace, tmp_path / "base/run")
    page = Asker(tmp_path / "base").ask("/runs/run/").text
    found = re.findall(r"<dt>Trace</dt><dd>(.*?)</dd>", page)
    assert len(found) == 1
    assert line in found[0]
    report = build_report(run)
    text = render_text(report, run)
    assert text.count("\n  trace     ") == 1
    assert line in text
    assert report["ranks"][0]["completeness"]


def test_a_run_that_was_recorded_has_no_such_line(tmp_path: Path) -> None:
    build_run(tmp_path / "run")
    assert "<dt>Trace</dt>" not in Asker(tmp_path).ask("/runs/run/").text


def test_what_stands_there_is_shown_as_text_and_cut(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "t.json", training_steps()), tmp_path / "base/run")
    file = run.rank(0).folder / "rank.json"
    file.write_text(file.read_text().replace('"completeness": "complete"', '"completeness": "<b>' + "x" * 5000 + '"'))
    page = Asker(tmp_path / "base").ask("/runs/run/").text
    assert "&lt;b&gt;xxx" in page
    assert "x" * 1001 not in page
