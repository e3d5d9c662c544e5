"""The verdict of the gate as text, as an object, as Markdown for a pull request, and as JUnit XML for CI systems.

There are several schemas of JUnit XML. The output is valid by that of Jenkins' xUnit plugin, and by the older one of
Ant's task, which requires an order of elements, a time, a host and a date. GitLab and the GitHub reporters read the
same format.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from profiler_server.analysis.compare.gate import Kind, Verdict, name_line
from profiler_server.analysis.compare.run_statistics import ALPHA
from profiler_server.format import choose_time_unit, clean_name, format_change, format_difference, format_number_of
from profiler_server.report.schema import pick

EXIT_CODES: dict[Kind, int] = {"same": 0, "faster": 0, "slower": 1, "unknown": 2}
_WORDS: dict[Kind, str] = {
    "same": "passed",
    "faster": "passed",
    "slower": "failed: slower",
    "unknown": "undecided",
}
_FIGURES = ("change", "least", "most", "detectable", "scatter")
_MOST_PARTS = 8
_MOST_PAIRS = 50


def render_verdict(verdict: Verdict) -> str:
    lines = [f"Gate {_WORDS[verdict.kind]}{_count_runs(verdict)}. {verdict.reason}"]
    if pairs := _list_pairs(verdict):
        lines += ["", f"  {'median of':<32}{'base':>14}{'new':>14}{'change':>12}"]
        lines += [f"  {name:<32}{base:>14}{new:>14}{change:>12}" for name, base, new, change in pairs]
    if parts := _list_parts(verdict):
        lines += ["", "  change of the mean step"]
        lines += [f"  {name:<60}{change:>12}" for name, change in parts]
    lines += [""] if pairs or parts else []
    return "\n".join([*lines, *(f"Caution: {caution}." for caution in verdict.cautions)])


def _count_runs(verdict: Verdict) -> str:
    """Return in brackets how many runs were compared and on which rank; "" if no run could be read."""
    if not verdict.new:
        return ""
    is_pair = verdict.new == verdict.base == 1
    runs = "one pair of runs" if is_pair else f"{format_number_of(verdict.new, 'run')} against {verdict.base}"
    return f" ({', '.join(filter(None, (runs, verdict.rank)))})"


def build_undecided(reason: str) -> Verdict:
    """Return the verdict for runs that could not be read: undecided, with the reason. It is shown like any verdict."""
    cleaned = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in reason)
    return Verdict("unknown", f"{cleaned.rstrip('.')}.", 0, 0)


def describe_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain data: shares are fractions, times are in ns, and an unknown value is None."""
    return {**pick(verdict), "alpha": ALPHA, "exit_code": EXIT_CODES[verdict.kind]}


def render_markdown(verdict: Verdict) -> str:
    """Return the verdict as Markdown. Names of runs are escaped, because their text is not ours."""
    lines = [f"**{name_case(verdict).capitalize()}: {_WORDS[verdict.kind]}.** {_plain(verdict.reason)}"]
    if pairs := _list_pairs(verdict):
        lines += ["", "| median of | base | new | change |", "|---|---:|---:|---:|"]
        lines += [f"| {_plain(name)} | {base} | {new} | {change} |" for name, base, new, change in pairs]
    if parts := _list_parts(verdict):
        lines += ["", "| part of the mean step | change |", "|---|---:|"]
        lines += [f"| {_plain(name)} | {change} |" for name, change in parts]
    lines += [""] if verdict.cautions else []
    lines += [f"- Caution: {_plain(caution)}." for caution in verdict.cautions]
    return "\n".join(lines) + "\n"


def list_lines(verdict: Verdict) -> list[str]:
    pairs = [f"{name}: {base}, {new}, {change}" for name, base, new, change in _list_pairs(verdict)]
    parts = [f"{name}: {change}" for name, change in _list_parts(verdict)]
    return [verdict.reason, *pairs, *parts, *verdict.cautions]


def name_case(verdict: Verdict) -> str:
    return f"step time of {verdict.rank}" if verdict.rank else "step time"


def _list_pairs(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """Return a row for each of the first `_MOST_PAIRS` pairs: names of the runs, their median steps, and the change.

    All medians are in the same unit, with three decimals.
    """
    if not verdict.pairs:
        return []
    size_ns, unit = choose_time_unit(max(max(pair.base_ns, pair.new_ns) for pair in verdict.pairs))
    return [
        (
            f"{clean_name(pair.base, 14)}, {clean_name(pair.new, 14)}",
            f"{pair.base_ns / size_ns:,.3f} {unit}",
            f"{pair.new_ns / size_ns:,.3f} {unit}",
            format_change(pair.change),
        )
        for pair in verdict.pairs[:_MOST_PAIRS]
    ]


def _list_parts(verdict: Verdict) -> list[tuple[str, str]]:
    parts = [(part.name, part.change_ns) for part in verdict.parts[:_MOST_PARTS]]
    lines = [(name_line(each), each.part.change_ns) for each in verdict.lines[:_MOST_PARTS]]
    return [(name, format_difference(change_ns)) for name, change_ns in (*parts, *lines)]


def _plain(text: str) -> str:
    """Return a text with an escape for each character that Markdown, or HTML in Markdown, reads as markup."""
    marked = "".join(f"\\{letter}" if letter in "\\`*_{}[]|#!~" else letter for letter in text)
    return escape(" ".join(marked.split()))


def render_junit(verdict: Verdict) -> str:
    """Return the verdict as a JUnit test suite with one case.

    A slowdown is a failure. The text of a passing verdict is the output of the suite. The time of the case is the sum
    of all compared steps in s. The properties of the suite are fractions.

    An undecided verdict is an error, which in JUnit means that the test could not be carried out: the exit code is 2,
    not 1. A skipped case would not do, because many CI systems show it as green although the command has failed.
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
