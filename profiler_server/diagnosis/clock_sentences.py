"""Sentences for pages on how well the clocks of several ranks agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collector.format.schema.wording import format_ranks_named
from profiler_server.analysis.ranks.one_clock import Lack, RankClock
from profiler_server.format import format_duration

MOST_SHIFTS = 6
TOLD_DRIFT = 1e-6
_LACKS: Mapping[Lack, str] = {
    "no calls": "no collective was recorded on both sides",
    "none shared": "it shares no collective with the others that all ranks leave together",
    "few shared": "it shares fewer than three collectives with the others",
    "not together": "what it shares with the others does not end at the same time",
}


def describe_clocks(clocks: Sequence[RankClock]) -> str:
    """Return text on which rank's clock is the reference, how well the other clocks agree with it, and which clocks
    cannot be aligned; "" for fewer than two ranks."""
    if len(clocks) < 2:
        return ""
    parts = [_describe_agreement(clocks), _describe_shifts(clocks), *_describe_unknown(clocks)]
    return " ".join(filter(None, parts))


def format_shift(shift_ns: float) -> str:
    """Return a time with its sign and unit, `+2.31 s`."""
    return f"{'−' if shift_ns < 0 else '+'}{format_duration(abs(shift_ns))}"


def _describe_agreement(clocks: Sequence[RankClock]) -> str:
    measured = [clock for clock in clocks if clock.apart_ns is not None]
    known = [clock for clock in clocks[1:] if clock.known != "unknown"]
    if not known:
        return ""
    host = "The ranks share the clock of their host" if all(clock.known == "host" for clock in known) else ""
    if not measured:
        return f"{host}." if host else ""
    apart = format_duration(max(clock.apart_ns or 0.0 for clock in measured))
    calls = f"{min(clock.calls for clock in measured):,} collectives or more" if len(measured) > 1 else ""
    calls = calls or f"{measured[0].calls:,} collectives"
    within = f"{apart} at the 95th percentile of {calls}"
    return f"{host}, and leave together within {within}." if host else f"The clocks agree within {within}."


def _describe_shifts(clocks: Sequence[RankClock]) -> str:
    shifted = [clock for clock in clocks if clock.known == "aligned" and (clock.shift_ns or clock.drift)]
    if not shifted:
        return ""
    told = [f"rank {clock.rank} by {format_shift(clock.shift_ns)}{_name_drift(clock)}" for clock in shifted]
    more = f" and {len(told) - MOST_SHIFTS} more" if len(told) > MOST_SHIFTS else ""
    return f"Times are those of rank {clocks[0].rank}; shifted: {', '.join(told[:MOST_SHIFTS])}{more}."


def _name_drift(clock: RankClock) -> str:
    return f" ({format_shift(clock.drift * 60e9)} a minute)" if abs(clock.drift) >= TOLD_DRIFT else ""


def _describe_unknown(clocks: Sequence[RankClock]) -> list[str]:
    unknown = [clock for clock in clocks if clock.known == "unknown"]
    reasons = dict.fromkeys(clock.lack for clock in unknown if clock.lack != "unread")
    unread = [clock.rank for clock in unknown if clock.lack == "unread"]
    found = [f"Not shown, because it cannot be read: {format_ranks_named(unread)}."] if unread else []
    for lack in reasons:
        ranks = [clock.rank for clock in unknown if clock.lack == lack]
        shown, their = (
            ("is shown from its own start", "its") if len(ranks) == 1 else ("are shown from their own starts", "their")
        )
        found.append(
            f"The clock of {format_ranks_named(ranks)} cannot be aligned ({_LACKS[lack]}): {format_ranks_named(ranks)} "
            f"{shown}, and {their} times cannot be compared with those of rank {clocks[0].rank}."
        )
    return found
