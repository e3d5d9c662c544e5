"""Sentences for pages and the report on what the ranks of a job share and where a rank differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from collector.format.phases import PHASE_LABELS
from collector.format.schema.wording import format_ranks_named
from profiler_server.diagnosis.limits.meetings import LEAST_MATCHED_FRAC
from profiler_server.diagnosis.limits.stragglers import CLEAR_FRAC, LISTED_LAST_FRAC, SEEN_BEHIND_FRAC
from profiler_server.facts.job import (
    BETWEEN,
    COLLECTING,
    SAVING,
    STARVED,
    Alike,
    Apart,
    Cause,
    Handover,
    HeavyStage,
    NotJudged,
    RankComparison,
    RankVerdict,
    Slow,
    Strangers,
    Stretch,
    Turns,
    UnevenWork,
    Unsure,
)
from profiler_server.facts.ranks import MOST_RANKS, CollectiveRow, RankFigures, SlowCall, find_noun
from profiler_server.format import format_bytes, format_duration, format_share, shorten_middle

_CAUSE_WORDS = {
    "h2d": "preparation or copy of the batch",
    COLLECTING: "garbage collection",
    STARVED: "no free processor",
    SAVING: "saving checkpoints",
    BETWEEN: "work between its steps, such as an evaluation",
}


def describe_ranks(
    ranks: Sequence[RankFigures], rows: Sequence[CollectiveRow], verdict: RankVerdict, slow_call: SlowCall | None
) -> list[str]:
    """Describe which rank is slow, which collective costs most, and how much of the step the ranks are held in
    collectives."""
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
    """Return a note that only some ranks of a job are read; empty if all are."""
    if ranks <= MOST_RANKS:
        return ""
    return f"Only the first {MOST_RANKS:,} of {ranks:,} ranks are looked at: whether one beyond them is slow is not known here."


def describe_held(ranks: Sequence[RankFigures]) -> str:
    """Describe how much of the step collectives hold the ranks, and which rank is held most; empty if none is."""
    held = {rank.rank: rank.phases_ns["communication"] / rank.step_ns for rank in ranks if rank.steps and rank.step_ns}
    if not any(held.values()):
        return ""
    most = max(held, key=lambda number: held[number])
    mean = sum(held.values()) / len(held)
    return (
        f"The ranks are held in collectives for {format_share(mean)} of the {find_noun(ranks)} on average, rank {most} for "
        f"{format_share(held[most])}."
    )


def describe_slowest_collective(rows: Sequence[CollectiveRow]) -> str:
    """Describe the collective with the longest total time, and how much of it is waiting for another rank; "" for none."""
    totals: dict[str, list[int]] = {}
    for row in rows:
        total = totals.setdefault(row.name, [0, 0, 0, 0])
        for place, value in enumerate((row.count, row.total_ns, row.wait_ns or 0, row.matched)):
            total[place] += value
    if not totals:
        return ""
    name = max(totals, key=lambda key: totals[key][1])
    count, total_ns, wait_ns, matched = totals[name]
    is_known = bool(wait_ns) and matched >= LEAST_MATCHED_FRAC * count
    share = f"; {format_share(wait_ns / total_ns)} of that is waiting for another rank" if is_known else ""
    return f"{name} takes longest of the collectives: {format_duration(total_ns / max(count, 1))} a call{share}."


def describe_slow_call(call: SlowCall | None, noun: str = "step") -> str:
    """Describe a collective that is slow although all ranks have arrived, and its expected time at the others' speed;
    "" for none."""
    if call is None:
        return ""
    group = f" of group {shorten_middle(call.group, 32)}" if call.group else ""
    return (
        f"{shorten_middle(call.name, 48)} {call.number:,} of {call.count:,}{group} in a {noun} ({format_bytes(call.bytes)}) is "
        f"slow: when all ranks have come it takes {format_duration(call.transfer_ns)}, the median of {call.steps:,} "
        f"{_plural(noun)}; at the speed of the others it would take {format_duration(call.expected_ns)} at "
        "most."
    )


def describe_straggler(verdict: RankVerdict, noun: str = "step") -> str:
    """Describe which rank the others wait for, how long and why; or that the ranks take turns or are alike."""
    return " ".join(filter(None, (_describe_usual(verdict, noun), _describe_pause(verdict, noun))))


def describe_headline(verdict: RankVerdict, noun: str = "step") -> str:
    """Describe who or what holds the job up; "" if nothing does. The text stands before the limit of a single rank.

    Turns without one dominant phase may be chance, so only the Ranks page shows them.
    """
    if verdict.culprits or isinstance(verdict, UnevenWork) or (isinstance(verdict, Turns) and verdict.is_one_phase):
        return describe_straggler(verdict, noun)
    return _describe_pause(verdict, noun)


def _describe_pause(verdict: RankVerdict, noun: str) -> str:
    """Describe which rank the others waited for in a few steps; "" for none."""
    if verdict.comparison is None or (pause := verdict.comparison.pause) is None:
        return ""
    text = (
        f"At {noun} {pause.step:,} rank {pause.rank} held {_name_others(verdict.comparison.others)} up "
        f"{format_duration(pause.waited_ns)}: {name_causes(pause.causes)}"
    )
    more = f", the longest of {pause.count} such waits" if pause.count > 1 else ""
    return f"{text}{more}. What is said of the other {_plural(noun)} leaves that out."


def _describe_usual(verdict: RankVerdict, noun: str) -> str:
    match verdict:
        case NotJudged():
            return "Only one rank has figures, so there is nothing to compare it with."
        case Apart():
            return _describe_apart(verdict.lasted_ns)
        case Strangers():
            return _describe_strangers(verdict)
        case Slow():
            return _describe_slow(verdict, noun)
        case Handover():
            return (
                f"Before {noun} {verdict.step:,} rank {verdict.before} held {_name_others(verdict.comparison.others)} up "
                f"{format_duration(verdict.before_ns)} a {noun}, and rank {verdict.after} "
                f"{format_duration(verdict.after_ns)} from then on."
            )
        case HeavyStage():
            return (
                f"Stage {verdict.stage} of the pipeline ({format_ranks_named(verdict.culprits)}) computes "
                f"{format_duration(verdict.own_ns)} a {noun}, the other stages {format_duration(verdict.others_ns)}: with "
                f"the same work in all stages the {noun} would be {_say_shorter(verdict)}."
            )
        case UnevenWork():
            return (
                "In the stages of the pipeline one micro-batch takes longer than another: with the same work in all of "
                f"them the {noun} would be {_say_shorter(verdict)}."
            )
        case Turns():
            return (
                f"The ranks take turns at coming last, and wait {format_duration(verdict.gain_ns)} of each {noun} "
                f"({format_share(verdict.comparison.share(verdict.gain_ns))}) for the last one: {name_causes(verdict.causes)}."
            )
        case Unsure():
            late = f"Rank {verdict.comparison.latest.rank} is behind {_say_behind(verdict.comparison, noun)}"
            return f"{late}, but times vary so much that this may be chance."
        case Alike():
            return _describe_alike(verdict.comparison, noun)


def _describe_alike(comparison: RankComparison, noun: str) -> str:
    latest = comparison.latest
    if comparison.is_hidden:
        return (
            f"The {_plural(noun)} of the ranks are equally long, and no rank was seen to wait for another: whether one of "
            "them holds the others up cannot be told."
        )
    least = f" A rank behind by {format_share(comparison.least_frac)} of the {noun} or more would be named."
    if latest.late_frac < SEEN_BEHIND_FRAC:
        return f"The ranks are alike: none is behind the others by as much as 0.1 % of the {noun}.{least}"
    slowest = f"the slowest, rank {latest.rank}, is behind {_say_behind(comparison, noun)}"
    return f"The ranks are alike: {slowest}.{least}"


def _say_shorter(verdict: HeavyStage | UnevenWork) -> str:
    share = format_share(verdict.comparison.share(verdict.gain_ns))
    return f"{format_duration(verdict.gain_ns)} ({share}) shorter"


def _say_behind(comparison: RankComparison, noun: str) -> str:
    others = "the median of the others" if comparison.latest.others > 1 else "the other"
    return f"{others} by {format_share(comparison.latest.late_frac)} of the {noun}"


def _describe_apart(lasted_ns: Mapping[int, int]) -> str:
    least, most = (choose(lasted_ns, key=lambda rank: lasted_ns[rank]) for choose in (min, max))
    return (
        f"The ranks do not leave their collectives together: from the first to the last that they share, rank {least} needs "
        f"{format_duration(lasted_ns[least])} and rank {most} {format_duration(lasted_ns[most])}. They may be of different "
        "jobs, so it is not said who waits for whom."
    )


def _describe_strangers(found: Strangers) -> str:
    why = "they leave them at other moments, however their clocks are set"
    if found.by == "bytes":
        why = "their messages have other sizes"
    return (
        f"{format_ranks_named(found.ranks).capitalize()} cannot have been in the collectives of "
        f"{format_ranks_named(found.others)}: {why}. They may be of different jobs, so it is not said who waits for whom. "
        "Import each job by itself."
    )


def _describe_slow(verdict: Slow, noun: str) -> str:
    comparison, latest = verdict.comparison, verdict.comparison.latest
    who = _name_others(1 if comparison.others == 1 else comparison.others - len(verdict.also_slow))
    if comparison.is_hidden:
        longer = format_duration(latest.own_ns - latest.others_ns)
        does, share = f"Rank {latest.rank} takes {longer} longer than {who}", latest.late_frac
    else:
        slow = format_ranks_named(sorted(verdict.culprits)).capitalize()
        hold = "hold" if verdict.also_slow else "holds"
        does, share = f"{slow} {hold} {who} up {format_duration(verdict.gain_ns)}", comparison.share(verdict.gain_ns)
    text = f"{does} a {noun} ({format_share(share)}): {name_causes(latest.causes)}."
    if latest.causes and latest.causes[0].name == latest.phase:
        owner = f"Rank {latest.rank}'s" if verdict.also_slow else "Its"
        before, now = format_duration(latest.phase_others_ns), format_duration(latest.phase_ns)
        text += f" {owner} {_name_cause(latest.phase)} takes {now} against {before}."
    if verdict.stretch is not None:
        text += f" {_describe_stretch(verdict.stretch, noun)}"
    return text


def _describe_stretch(stretch: Stretch, noun: str) -> str:
    late = f"late by {format_duration(stretch.late_ns)}"
    if stretch.is_from_start:
        return f"Up to {noun} {stretch.last:,} it was {late}; from then on it is in time."
    return f"From {noun} {stretch.first:,} on it is {late}; before that it was in time."


def _name_others(count: int) -> str:
    return "the other rank" if count == 1 else f"{count:,} others"


def describe_evidence(verdict: RankVerdict, noun: str = "step") -> str:
    """Describe how often the rank came last, what mending it gains, and how certain that is; empty without ranks."""
    comparison = verdict.comparison
    return "" if comparison is None or comparison.is_hidden else " ".join(_list_evidence(verdict, comparison, noun))


def _list_evidence(verdict: RankVerdict, comparison: RankComparison, noun: str) -> Iterator[str]:
    if isinstance(verdict, Slow):
        who = f"Rank {comparison.latest.rank}" if verdict.also_slow else "It"
        yield f"{who} was the last in {_say_how_often(verdict, noun)}, and is behind {_say_behind(comparison, noun)}."
    elif isinstance(verdict, Turns):
        most = max(comparison.last_frac.values(), default=0.0)
        yield f"No rank was the last in more than {format_share(most)} of {comparison.steps:,} {_plural(noun)}."
    if comparison.left_out:
        few = "it has" if len(comparison.left_out) == 1 else "they have"
        who = format_ranks_named(comparison.left_out).capitalize()
        yield f"{who}: not compared, {few} too little in common with the others."
    if comparison.uneven_correlation is not None and not isinstance(verdict, Slow):
        yield (
            f"Forward and backward grow and shrink together (correlation {comparison.uneven_correlation:.2f}), on another "
            "rank in each step, as batches of unlike length would."
        )
    if comparison.garbage is not None:
        yield (
            f"Garbage collection stops one rank or another for {format_duration(comparison.garbage.pause_ns)}: collecting "
            "on all ranks at the same step (gc.disable(), then gc.collect() every so many steps) gains "
            f"{format_duration(comparison.garbage.gain_ns)} a {noun}."
        )


def _say_how_often(verdict: Slow, noun: str) -> str:
    comparison = verdict.comparison
    share = format_share(comparison.last_frac.get(comparison.latest.rank))
    text = f"{share} of {comparison.steps:,} {_plural(noun)}"
    if verdict.longest is None:
        return text
    last, count = verdict.longest
    return f"{text}, among them {last:,} of the {count:,} in which the others waited by far the longest"


def _plural(noun: str) -> str:
    return "batches" if noun == "batch" else f"{noun}s"


def name_causes(causes: Sequence[Cause]) -> str:
    """Return what takes a rank longer than the others, as a phrase."""
    if not causes:
        return "what it does in that time was not seen"
    first = causes[0]
    if first.share_frac >= CLEAR_FRAC:
        return _name_cause(first.name)
    named = [f"{_name_cause(cause.name)} ({format_share(cause.share_frac)})" for cause in causes[:3]]
    return f"mostly {named[0]}" + (f", then {', '.join(named[1:])}" if named[1:] else "")


def _name_cause(name: str) -> str:
    return _CAUSE_WORDS.get(name) or PHASE_LABELS[name].lower()


def describe_communication(ranks: Sequence[RankFigures], rows: Sequence[CollectiveRow], verdict: RankVerdict) -> str:
    """Describe who waited for whom in the listed collectives, and what the communication phase of the step covers."""
    parts = []
    comparison = verdict.comparison
    late: dict[int, int] = {}
    for row in rows:
        late[row.rank] = late.get(row.rank, 0) + row.late
    matched = sum(late.values())
    is_open = isinstance(verdict, NotJudged) if comparison is None else comparison.source == "steps"
    if matched and is_open:
        rank = max(late, key=lambda number: late[number])
        waits = {row.rank: 0 for row in rows}
        for row in rows:
            waits[row.rank] += row.wait_ns or 0
        longest = max(waits, key=lambda number: waits[number])
        who = f"rank {rank} came last to {late[rank]:,} of {matched:,}"
        waited = f"in these alone rank {longest} waited longest, {format_duration(waits[longest])} together"
        if late[rank] >= LISTED_LAST_FRAC * matched:
            parts.append(f"Of the collectives that were listed, {who}; {waited}.")
        elif not isinstance(verdict, Slow):
            parts.append(f"To the collectives that were listed the ranks came last by turns ({who}); {waited}.")
    if all(not rank.phases_ns.get("communication") for rank in ranks if rank.steps):
        parts.append(
            "No rank's training thread was seen to be held in a collective: what DistributedDataParallel reduces inside "
            "of the backward pass counts as backward, and waiting for a slow rank with it."
        )
    return " ".join(parts)
