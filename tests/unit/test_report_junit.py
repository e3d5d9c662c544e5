"""The gate's verdict in JUnit XML: in the order, and with the attributes, that the strictest readers ask for."""

from __future__ import annotations

from datetime import datetime
from xml.etree import ElementTree

import numpy as np
import pytest

from profiler_server.analysis.compare.gate import Verdict, judge
from profiler_server.analysis.compare.run_times import RunTimes
from profiler_server.report.gate import build_undecided, render_junit
from tests.support.run_times import make_times

MS = 1e6


def judge_change(factor: float) -> Verdict:
    """Judge five pairs of runs of 20 steps of 100 ms, of which the new ones take `factor` times as long."""

    def make(at: int, level: float) -> RunTimes:
        steps = np.full(20, 100 * MS * level * (1 + 0.001 * (at % 3)))
        return make_times(at, steps, {"Forward": float(steps[0])})

    return judge([make(2 * at, 1.0) for at in range(5)], [make(2 * at + 1, factor) for at in range(5)])


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [(judge_change(1.1), "failure"), (judge_change(1.0), ""), (build_undecided("runs/a is damaged\x1b"), "error")],
)
def test_every_verdict_has_the_order_and_the_attributes_that_strict_readers_ask_for(verdict: Verdict, tag: str) -> None:
    suite = ElementTree.fromstring(render_junit(verdict))
    assert [child.tag for child in suite] == ["properties", "testcase", "system-out", "system-err"]
    assert set(suite.keys()) == {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"}
    datetime.strptime(suite.attrib["timestamp"], "%Y-%m-%dT%H:%M:%S")
    assert (suite.get("failures"), suite.get("errors")) == (str(int(tag == "failure")), str(int(tag == "error")))
    case = suite.find("testcase")
    assert case is not None
    assert set(case.keys()) == {"classname", "name", "time"}
    assert [child.tag for child in case] == ([tag] if tag else [])
    assert all(set(child.keys()) == {"type", "message"} and child.text for child in case)
    assert bool(suite.findtext("system-out")) == (not tag)


def test_the_figures_are_properties_and_the_time_is_that_of_the_steps_compared() -> None:
    suite = ElementTree.fromstring(render_junit(judge_change(1.1)))
    assert float(suite.attrib["time"]) == pytest.approx(5 * 20 * 0.1 * (1 + 1.1), rel=1e-2)
    figures = {each.attrib["name"]: float(each.attrib["value"]) for each in suite.iter("property")}
    assert figures["change"] == pytest.approx(0.1, abs=0.002)
    assert figures.keys() == {"change", "least", "most", "detectable", "scatter", "max_slowdown"}
