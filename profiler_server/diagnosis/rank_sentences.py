"""Sentences for pages and the report on the ranks of a job: what they have in common, and where a rank differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits.meetings import LEAST_MATCHED_FRAC
from profiler_server.diagnosis.limits.stragglers import CLEAR_FRAC, LISTED_LAST_FRAC, SEEN_BEHIND_FRAC
from profiler_server.facts.job import (
    Alike,
    Apart,
    Cause,
    NotJudged,
    RankVerdict,
    Slow,
    Strangers,
    Turns,
    UnevenWork,
)
from profiler_server.facts.ranks import MOST_RANKS, CollectiveRow, RankFigures, SlowCall, find_noun
from profiler_server.format import format_share, name_kind, read_texts, say, shorten_middle


def describe_ranks(
    ranks: Sequence[RankFigures], rows: Sequence[CollectiveRow], verdict: RankVerdict, slow_call: SlowCall | None
) -> list[str]:
    """Return sentences on which rank is slow, which collective costs most, and how long collectives hold the ranks."""
    noun = find_noun(ranks)
    lines = (
        describe_straggler(verdict, noun),
        describe_evidence(verdict, noun),
        describe_held(ranks),
        describe_slowest_collective(rows),
        describe_slow_call(slow_call, noun),
        describe_communication(ranks, rows, verdict),
    )
    return [line for line in lines if line]


def describe_unread(ranks: int) -> str:
    """Return a note that only some of the `ranks` ranks of a job are read; "" if all of them are."""
    return say("collectives", "unread", read=MOST_RANKS, ranks=ranks) if ranks > MOST_RANKS else ""


def describe_held(ranks: Sequence[RankFigures]) -> str:
    """Return text on the share of the step that collectives hold the ranks, and on the rank held longest; "" if 0."""
    held = {rank.rank: rank.phases_ns["communication"] / rank.step_ns for rank in ranks if rank.steps and rank.step_ns}
    if not any(held.values()):
        return ""
    most = max(held, key=lambda number: held[number])
    mean_frac, noun = sum(held.values()) / len(held), find_noun(ranks)
    return say("collectives", "held", mean_frac=mean_frac, noun=noun, most=most, most_frac=held[most])


def describe_slowest_collective(rows: Sequence[CollectiveRow]) -> str:
    """Return text on the collective with the longest total time, and on the share of this time that ranks wait for
    other ranks; "" without collectives."""
    totals: dict[str, list[int]] = {}
    for row in rows:
        total = totals.setdefault(row.name, [0, 0, 0, 0])
        for place, value in enumerate((row.count, row.total_ns, row.wait_ns or 0, row.matched)):
            total[place] += value
    if not totals:
        return ""
    name = max(totals, key=lambda key: totals[key][1])
    count, total_ns, wait_ns, matched = totals[name]
    wait_frac = wait_ns / total_ns if wait_ns and matched >= LEAST_MATCHED_FRAC * count else None
    return say("collectives", "slowest", name=name, call_ns=total_ns / max(count, 1), wait_frac=wait_frac)


def describe_slow_call(call: SlowCall | None, noun: str = "step") -> str:
    """Return text on a collective that is slow although all ranks have arrived, and on its expected time; "" for
    none."""
    if call is None:
        return ""
    group, name = shorten_middle(call.group, 32), shorten_middle(call.name, 48)
    return say("collectives", "slow_call", call=call, name=name, group=group, noun=noun)


def describe_straggler(verdict: RankVerdict, noun: str = "step") -> str:
    """Return text on which rank the others wait for, how long and why, or that the ranks take turns or are alike."""
    return " ".join(filter(None, (_describe_usual(verdict, noun), _describe_pause(verdict, noun))))


def describe_headline(verdict: RankVerdict, noun: str = "step") -> str:
    """Return text on the rank or other cause that delays the job; "" if nothing does. Pages put this text before what
    limits a single rank.

    Turns without one dominant phase may be chance, so only the Ranks page shows them.
    """
    if verdict.culprits or isinstance(verdict, UnevenWork) or (isinstance(verdict, Turns) and verdict.is_one_phase):
        return describe_straggler(verdict, noun)
    return _describe_pause(verdict, noun)


def _describe_pause(verdict: RankVerdict, noun: str) -> str:
    compared = verdict.comparison
    if compared is None or (pause := compared.pause) is None:
        return ""
    causes, more = name_causes(pause.causes), pause.count if pause.count > 1 else None
    return say("ranks", "pause", compared=compared, pause=pause, noun=noun, causes=causes, more=more)


def _describe_usual(verdict: RankVerdict, noun: str) -> str:
    compared = verdict.comparison
    figures: dict[str, object] = {"verdict": verdict, "noun": noun, "compared": compared}
    if compared is not None:
        figures |= {"latest": compared.latest, "gain_frac": compared.share(verdict.gain_ns)}
    match verdict:
        case Apart(lasted_ns):
            least, most = (choose(lasted_ns, key=lambda rank: lasted_ns[rank]) for choose in (min, max))
            return say("ranks", "apart", least=least, least_ns=lasted_ns[least], most=most, most_ns=lasted_ns[most])
        case Strangers(by="bytes"):
            return say("ranks", "strangers_by_bytes", **figures)
        case Slow():
            return _describe_slow(verdict, noun, figures)
        case Turns():
            return say("ranks", "turns", causes=name_causes(verdict.causes), **figures)
        case Alike(compared) if compared.is_hidden:
            return say("ranks", "alike_hidden", **figures)
        case Alike(compared) if compared.latest.late_frac < SEEN_BEHIND_FRAC:
            return say("ranks", "alike_even", **figures)
        case _:
            return say("ranks", name_kind(verdict), **figures)


def _describe_slow(verdict: Slow, noun: str, figures: Mapping[str, object]) -> str:
    compared, latest, stretch = verdict.comparison, verdict.comparison.latest, verdict.stretch
    waiting = 1 if compared.others == 1 else compared.others - len(verdict.also_slow)
    times = {"slow": sorted(verdict.culprits), "longer_ns": latest.own_ns - latest.others_ns, "waiting": waiting}
    causes = name_causes(latest.causes)
    said = [say("ranks", "slow_hidden" if compared.is_hidden else "slow", causes=causes, **times, **figures)]
    if latest.causes and latest.causes[0].name == latest.phase:
        case = "slow_phase_of_several" if verdict.also_slow else "slow_phase"
        said.append(say("ranks", case, latest=latest, phase=_name_cause(latest.phase)))
    if stretch is not None:
        cases = ("slow_up_to", "slow_up_to_between") if stretch.is_from_start else ("slow_from", "slow_from_between")
        change = cases[0 if stretch.is_exact else 1]
        said.append(say("ranks", change, stretch=stretch, noun=noun))
    return " ".join(said)


def describe_evidence(verdict: RankVerdict, noun: str = "step") -> str:
    """Return text on the slowest rank: how often it arrives last, the gain if it were in time, the doubts; "" if
    unknown. `noun` is the word for a step."""
    compared = verdict.comparison
    if compared is None or compared.is_hidden:
        return ""
    latest, left_out = compared.latest, compared.left_out
    figures = {"compared": compared, "latest": latest, "noun": noun, "left_out": left_out}
    figures |= {"last_frac": compared.last_frac.get(latest.rank), "longest": ""}
    figures |= {"most_frac": max(compared.last_frac.values(), default=0.0)}
    cases: list[str] = []
    if isinstance(verdict, Slow):
        if verdict.longest is not None:
            last, count = verdict.longest
            figures["longest"] = say("evidence", "longest", last=last, count=count)
        cases.append("slow_of_several" if verdict.also_slow else "slow")
    found = {
        "turns": isinstance(verdict, Turns),
        "left_out": bool(left_out),
        "uneven": compared.uneven_correlation is not None and not isinstance(verdict, Slow),
        "garbage": compared.garbage is not None,
    }
    cases += [case for case, holds in found.items() if holds]
    return " ".join(say("evidence", case, **figures) for case in cases)


def name_causes(causes: Sequence[Cause]) -> str:
    """Return up to three causes of a rank's lateness as a phrase, with their shares of the lateness."""
    if not causes:
        return say("cause", "unseen")
    if causes[0].share_frac >= CLEAR_FRAC:
        return _name_cause(causes[0].name)
    first, *others = (f"{_name_cause(cause.name)} ({format_share(cause.share_frac)})" for cause in causes[:3])
    return say("cause", "several", first=first, others=", ".join(others))


def _name_cause(name: str) -> str:
    return say("cause", name) if name in read_texts()["sentences"]["cause"] else PHASE_LABELS[name].lower()


def describe_communication(ranks: Sequence[RankFigures], rows: Sequence[CollectiveRow], verdict: RankVerdict) -> str:
    """Return text on which rank waited for which in the listed collectives, and on what the communication phase of the
    step includes."""
    parts = []
    late: Counter[int] = Counter()
    waits: Counter[int] = Counter()
    for row in rows:
        late[row.rank] += row.late
        waits[row.rank] += row.wait_ns or 0
    matched, comparison = late.total(), verdict.comparison
    if matched and (isinstance(verdict, NotJudged) if comparison is None else comparison.source == "steps"):
        ((rank, most), *_), ((longest, wait_ns), *_) = late.most_common(1), waits.most_common(1)
        late_of = f"all {most:,}" if most == matched > 1 else f"{most:,} of {matched:,}"
        figures = {"rank": rank, "late": late_of, "matched": matched, "longest": longest, "wait_ns": wait_ns}
        is_one = most >= LISTED_LAST_FRAC * matched
        if is_one or not isinstance(verdict, Slow):
            parts.append(say("collectives", "last" if is_one else "by_turns", **figures))
    if all(not rank.phases_ns.get("communication") for rank in ranks if rank.steps):
        parts.append(say("collectives", "unseen"))
    return " ".join(parts)
