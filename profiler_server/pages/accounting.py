"""The Accounting page: figures of this trace as other tools count them, the reason for each difference, and whether all
sums add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from profiler_server.analysis.accounting.accounting import (
    Accounts,
    Conserved,
    DeviceAccount,
    EventCount,
    StepAccount,
    account_trace,
)
from profiler_server.analysis.accounting.categories import CATEGORY_LABELS
from profiler_server.format import ABSENT, format_count, format_duration, format_number_of
from profiler_server.page import (
    WINDOW_REMEDY,
    Notice,
    Page,
    PageRequest,
    build_part,
    explain_absence,
)

_HTA_LAST = "HTA leaves out work launched in the last marked step, and work without a launch."
_HTA_ROUNDS = "HTA moves starts up and ends down to whole microseconds."
_TRACELENS = "TraceLens leaves out work whose launch is not in the trace."
_MEMSET = "To HTA, setting memory is no computation."


@dataclass(frozen=True)
class Figure:
    """One figure of one tool. `exact` is the value in ns as text; `differs` is True for a value other than ours."""

    text: str
    exact: str
    differs: bool


@dataclass(frozen=True)
class Compared:
    """One figure as every tool counts it; `reason` is why the tools differ, empty if they agree."""

    label: str
    figures: tuple[Figure, ...]
    reason: str


@dataclass(frozen=True)
class Comparison:
    """The figures of several tools. `tools` are the columns, ours first."""

    tools: tuple[str, ...]
    rows: tuple[Compared, ...]


_STEP_REASONS: Mapping[str, str] = {
    "kernel": "Kernels of collectives that torch-tb-profiler does not know by name are plain kernels to it.",
    "communication": (
        "It knows five collectives by the name of their host call, and counts that call's own time beside the kernels'."
    ),
    "runtime": "Calls of the driver (cuLaunchKernel, as Triton makes them) are no Runtime to it.",
    "cpu_exec": "What it does not count as Runtime or Communication falls to the operators around it.",
    "other": "What remains of the step after the categories above.",
}
_HIGHER = "A higher category took more or less of the same time."
_DEVICE_FIGURES = (
    ("total", "Total", f"From the first to the last work that is counted. {_HTA_LAST} {_TRACELENS}"),
    ("computation", "Computation", f"{_MEMSET} {_HTA_LAST} {_HTA_ROUNDS} {_TRACELENS}"),
    ("communication", "Communication", f"{_HTA_LAST} {_HTA_ROUNDS} {_TRACELENS}"),
    ("exposed_communication", "Exposed communication", f"HTA does not give it apart. {_TRACELENS}"),
    ("exposed_copy", "Exposed copy", f"HTA does not give it apart. {_TRACELENS}"),
    ("busy", "Busy", f"{_HTA_LAST} {_HTA_ROUNDS} {_TRACELENS}"),
    ("idle", "Idle", f"Total less busy. {_HTA_LAST} {_HTA_ROUNDS} {_TRACELENS}"),
)


def compare_steps(accounts: Sequence[StepAccount]) -> Comparison:
    """Return the sums over the steps, as each tool counts them. Our account is the first of `accounts`."""
    ours = accounts[0]
    rows = [
        _compare(label, [account.parts[name] for account in accounts], _STEP_REASONS.get(name, _HIGHER))
        for name, label in CATEGORY_LABELS.items()
    ]
    sums = [sum(account.parts.values()) for account in accounts]
    anew = "Where its categories fill all steps, it starts the remainder anew, so its parts exceed the steps."
    rows.append(_compare("Sum of the parts", sums, anew))
    rows.append(_compare("Steps", [account.total for account in accounts], ""))
    return Comparison((ours.tool, *(account.tool for account in accounts[1:])), tuple(rows))


def compare_devices(accounts: Sequence[DeviceAccount]) -> Comparison:
    """Return the times of the device, as each tool counts them. Our account is the first of `accounts`."""
    rows = [
        _compare(label, [getattr(account, field) for account in accounts], _shorten(reason, accounts, field))
        for field, label, reason in _DEVICE_FIGURES
    ]
    counts = [account.events for account in accounts]
    figures = tuple(Figure(format_count(count), "", count != counts[0]) for count in counts)
    rows.append(Compared("Pieces of work", figures, _shorten(f"{_HTA_LAST} {_TRACELENS}", accounts, "events")))
    return Comparison(tuple(account.tool for account in accounts), tuple(rows))


def _shorten(reason: str, accounts: Sequence[DeviceAccount], field: str) -> str:
    """Return the reason without the sentences on tools that agree."""
    different = {account.tool for account in accounts if getattr(account, field) != getattr(accounts[0], field)}
    fewer = {account.tool for account in accounts if account.events != accounts[0].events}
    kept = []
    for sentence in reason.split(". "):
        text = sentence.rstrip(".") + "."
        told = next((tool for tool in ("HTA", "TraceLens") if tool in text), None)
        by_work = text in (_HTA_LAST, _TRACELENS)
        if told is None or (told in different and (not by_work or told in fewer)):
            kept.append(text)
    return " ".join(kept)


def _show(value: int | None, ours: int | None) -> Figure:
    """Return a figure as text. If the text equals ours but the value differs, the difference in ns follows."""
    if value is None:
        return Figure(ABSENT, "", False)
    exact, text = f"{value:,} ns", format_duration(value)
    if ours is not None and value != ours and text == format_duration(ours):
        text = f"{text} ({abs(value - ours):,} ns {'less' if value < ours else 'more'})"
    return Figure(text, exact, value != ours)


def _compare(label: str, values: Sequence[int | None], reason: str) -> Compared:
    figures = tuple(_show(value, values[0]) for value in values)
    return Compared(label, figures, "" if len({*values}) == 1 else reason)


@dataclass(frozen=True)
class AccountingPage:
    """`sentence` describes whether everything adds up. The comparisons are None if there is nothing to compare."""

    notice: Notice | None
    sentence: str
    holds: bool
    lines: tuple[Conserved, ...]
    fates: tuple[EventCount, ...]
    steps: Comparison | None
    device: Comparison | None
    completeness: str = ""
    """A sentence on what the trace lacks, or that the trace is complete; empty if unchecked."""


def build(request: PageRequest) -> AccountingPage:
    """Build the page; an unreadable section becomes a notice."""
    rank = request.rank_run
    found, notice = build_part(
        "This rank cannot be accounted for",
        lambda: explain_absence(rank, "slices", "No detailed window", WINDOW_REMEDY) or account_trace.peek(rank),
    )
    return AccountingPage(notice, "", False, (), (), None, None) if found is None else _describe_accounts(found)


def _describe_accounts(found: Accounts) -> AccountingPage:
    lost = [entry for entry in found.events if entry.must_be_zero and entry.count]
    broken, number = sum(not check.holds for check in found.checks), len(found.checks)
    sums = (
        f"All {number} wholes equal the sum of their parts, to the nanosecond"
        if not broken
        else f"{broken} of {format_number_of(number, 'whole')} differ from the sum of their parts"
    )
    return AccountingPage(
        notice=None,
        sentence=f"{sums}; {format_number_of(sum(entry.count for entry in lost), 'event')} lost.",
        holds=not broken and not lost,
        lines=found.checks,
        fates=found.events,
        steps=compare_steps(found.steps) if found.steps else None,
        device=compare_devices(found.devices) if found.devices else None,
        completeness=found.completeness,
    )


PAGE = Page(slug="accounting", title="Accounting", order=70, key="a", template="accounting.html", build=build)
