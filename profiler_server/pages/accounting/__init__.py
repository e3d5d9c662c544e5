"""The Accounting page: this trace as other tools would count it, with the reason for each difference, and the proof."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from collector.format.schema.errors import RunError
from profiler_server.analysis.accounting.accounting import Accounts, Conserved, account_trace
from profiler_server.derive.derived import NotReady
from profiler_server.format import format_count, format_number_of
from profiler_server.page import WINDOW_REMEDY, Notice, Page, PageRequest, explain_absence, explain_delay, find_remedy
from profiler_server.pages.accounting.comparison import Comparison, compare_devices, compare_steps

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Line:
    """One conservation line: a whole, the sum of its parts, and what is left between them."""

    what: str
    whole: str
    parts: str
    left: str
    holds: bool


@dataclass(frozen=True)
class Fate:
    """How many events had a fate; `bad` for a loss that is not zero."""

    name: str
    count: str
    meaning: str
    bad: bool


@dataclass(frozen=True)
class AccountingPage:
    """`sentence` says whether everything adds up; the comparisons are None where there is nothing to compare."""

    notice: Notice | None
    sentence: str
    holds: bool
    lines: tuple[Line, ...]
    fates: tuple[Fate, ...]
    steps: Comparison | None
    device: Comparison | None
    completeness: str = ""
    """What the trace lacks, or that it is complete; empty where nobody looked."""


def build(request: PageRequest) -> AccountingPage:
    """Build the page; what cannot be read is a notice."""
    rank = request.rank_run
    try:
        absence = explain_absence(rank, "slices", "No detailed window", WINDOW_REMEDY)
        found = absence or account_trace.peek(rank)
    except RunError as error:
        return _refuse(Notice("failed", "This rank cannot be accounted for", str(error), find_remedy(error)))
    if isinstance(found, NotReady):
        found = explain_delay(found)
    return _refuse(found) if isinstance(found, Notice) else _describe_accounts(found)


def _refuse(notice: Notice) -> AccountingPage:
    return AccountingPage(notice, "", False, (), (), None, None)


def _describe_accounts(found: Accounts) -> AccountingPage:
    lost = [entry for entry in found.events if entry.must_be_zero and entry.count]
    broken = [check for check in found.checks if not check.holds]
    fates = tuple(
        Fate(entry.name, format_count(entry.count), entry.meaning, entry.must_be_zero and entry.count > 0)
        for entry in found.events
    )
    return AccountingPage(
        notice=None,
        sentence=_conclude(found.checks, len(broken), sum(entry.count for entry in lost)),
        holds=not broken and not lost,
        lines=tuple(_describe(check) for check in found.checks),
        fates=fates,
        steps=compare_steps(found.steps) if found.steps else None,
        device=compare_devices(found.devices) if found.devices else None,
        completeness=found.completeness,
    )


def _conclude(checks: tuple[Conserved, ...], broken: int, lost: int) -> str:
    sums = (
        f"All {len(checks)} wholes equal the sum of their parts, to the nanosecond"
        if not broken
        else f"{broken} of {format_number_of(len(checks), 'whole')} differ from the sum of their parts"
    )
    return f"{sums}; {format_number_of(lost, 'event')} lost."


def _describe(check: Conserved) -> Line:
    whole, parts, left = (f"{value:,} {check.unit}" for value in (check.whole, check.parts, check.whole - check.parts))
    return Line(check.what, whole, parts, left, check.holds)


PAGE = Page(slug="accounting", title="Accounting", order=70, key="a", template="accounting.html", build=build)
