"""The verdict of the gate as JUnit XML, for CI systems.

There is no one schema of JUnit XML. What is written here is valid by that of Jenkins' xUnit plugin and by the older one of
Ant's task, which asks for an order, a time, a host and a date; GitLab and the reporters of GitHub read the same.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from xml.sax.saxutils import escape, quoteattr

from profiler_server.analysis.compare.gate import Verdict
from profiler_server.format import clean_name
from profiler_server.report.gate import list_lines, name_case

_FIGURES = ("change", "least", "most", "detectable", "scatter")


def render_junit(verdict: Verdict) -> str:
    """Return the verdict as a JUnit test suite of one case: a slowdown is a failure, and the text of one that passes is
    the suite's output. The time is that of all steps that were compared, the figures are fractions.

    An undecided one is an error, which in JUnit is a test that could not be carried out: as little a failure as the exit
    code 2 is a 1, and shown as clearly. A skipped one would be green in many CI systems while the command has failed.
    """
    text = escape("\n".join(list_lines(verdict)))
    tag = {"slower": "failure", "unknown": "error"}.get(verdict.kind, "")
    time = f"{verdict.compared_ns / 1e9:.3f}"
    case = {"classname": "stepscope.gate", "name": name_case(verdict), "time": time}
    problem = f"<{tag}{_write({'type': verdict.kind, 'message': verdict.reason})}>{text}</{tag}>" if tag else ""
    suite = {
        "name": "stepscope",
        "tests": "1",
        "failures": f"{int(tag == 'failure')}",
        "errors": f"{int(tag == 'error')}",
        "skipped": "0",
        "time": time,
        "timestamp": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S}",
        "hostname": clean_name(socket.gethostname()) or "localhost",
    }
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<testsuite{_write(suite)}>\n'
        f"<properties>{''.join(_list_properties(verdict))}</properties>\n"
        f"<testcase{_write(case)}>{problem}</testcase>\n"
        f"<system-out>{'' if tag else text}</system-out>\n<system-err/>\n</testsuite>\n"
    )


def _list_properties(verdict: Verdict) -> list[str]:
    if verdict.estimate is None:
        return []
    figures = {name: f"{getattr(verdict.estimate, name):.6f}" for name in _FIGURES}
    figures["max_slowdown"] = f"{verdict.max_slowdown:.6f}"
    return [f"<property{_write({'name': name, 'value': value})}/>" for name, value in figures.items()]


def _write(attributes: Mapping[str, str]) -> str:
    return "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
