"""What the ranks of a job have in common and where one of them differs, in sentences for pages and the report."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

from collector.format.phases import PHASE_LABELS
from collector.format.rank import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.wording import format_ranks_named
from collector.format.standstills import Standstill, read_standstills
from collector.hangs.recorded import describe_standstills
from profiler_server.analysis.ranks.collectives import CollectiveRow, count_late
from profiler_server.analysis.ranks.ranks import MOST_RANKS, RankSummary, find_noun
from profiler_server.analysis.ranks.slow_calls import SlowCall, find_slow_call
from profiler_server.facts.job import (
    BETWEEN,
    COLLECTING,
    SAVING,
    STARVED,
    Cause,
    Handover,
    HeavyStage,
    Judgement,
    Rotation,
    Straggler,
    Strangers,
)
from profiler_server.format import format_bytes, format_duration, format_share, shorten_middle

LATE_FRAC = 0.7
"""From this share of the collectives on, the rank that comes last is named."""
SURE_CAUSE_FRAC = 0.8
"""A phase that makes up so much of what is longer is named alone."""
_CAUSE_WORDS = {
    "h2d": "preparation or copy of the batch",
    COLLECTING: "garbage collection",
    STARVED: "no free processor",
    SAVING: "saving checkpoints",
    BETWEEN: "work between its steps, such as an evaluation",
}
_LEAST_MATCHED_FRAC = 0.9
"""Of calls that fewer have a partner, what is waiting is not known: that of the late rank is short, and not listed."""
LEAST_BEHIND_FRAC = 0.001
"""A rank that is behind by less is not named: its share would read 0.0 %."""


def describe_ranks(ranks: Sequence[RankSummary], rows: Sequence[CollectiveRow], judged: Judgement) -> list[str]:
    """Say which rank is slow, which collective costs most, and how much of the step the ranks are held in collectives."""
    noun = find_noun(ranks)
    lines = [describe_straggler(judged, noun), describe_evidence(judged, noun), describe_held(ranks)]
    return [
        line
        for line in (
            *lines,
            describe_slowest_collective(rows),
            describe_slow_call(find_slow_call(ranks), noun),
            describe_communication(ranks, rows, judged),
        )
        if line
    ]


def recall_standstills(ranks: Iterable[RankRun]) -> str:
    """Say when a job stood still that got on, and where it was; "" where it did not."""
    found: list[Standstill] = []
    for rank in itertools.islice(ranks, MOST_RANKS):
        with contextlib.suppress(RunError):
            found += read_standstills(rank.rank, rank.manifest.facts)
    return describe_standstills(found)


def describe_unread(ranks: int) -> str:
    """Say that a job has more ranks than are looked at; empty where all are."""
    if ranks <= MOST_RANKS:
        return ""
    return f"Only the first {MOST_RANKS:,} of {ranks:,} ranks are looked at: whether one beyond them is slow is not known here."


def describe_held(ranks: Sequence[RankSummary]) -> str:
    """Say for how much of the step the ranks are held in collectives, and which one most; nothing if none is."""
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
    """Name the collective that takes longest in the detailed windows, and how much of that is waiting for another rank."""
    totals: dict[str, list[int]] = {}
    for row in rows:
        total = totals.setdefault(row.name, [0, 0, 0, 0])
        for place, value in enumerate((row.count, row.total_ns, row.wait_ns or 0, row.matched)):
            total[place] += value
    if not totals:
        return ""
    name = max(totals, key=lambda key: totals[key][1])
    count, total_ns, wait_ns, matched = totals[name]
    is_known = bool(wait_ns) and matched >= _LEAST_MATCHED_FRAC * count
    share = f"; {format_share(wait_ns / total_ns)} of that is waiting for another rank" if is_known else ""
    return f"{name} takes longest of the collectives: {format_duration(total_ns / max(count, 1))} a call{share}."


def describe_slow_call(call: SlowCall | None, noun: str = "step") -> str:
    """Say which collective is slow when all ranks have come, and what it takes at the speed of the others; "" for none."""
    if call is None:
        return ""
    group = f" of group {shorten_middle(call.group, 32)}" if call.group else ""
    return (
        f"{shorten_middle(call.name, 48)} {call.number:,} of {call.count:,}{group} in a {noun} ({format_bytes(call.bytes)}) is "
        f"slow: when all ranks have come it takes {format_duration(call.transfer_ns)}, the median of {call.steps:,} "
        f"{_plural(noun)}; at the speed of the others it would take {format_duration(call.expected_ns)} at "
        "most."
    )


def describe_straggler(judged: Judgement, noun: str = "step") -> str:
    """Say which rank the others wait for, how long and why; or that they take turns, or are alike."""
    return " ".join(filter(None, (_describe_usual(judged, noun), describe_pause(judged, noun))))


def describe_pause(judged: Judgement, noun: str = "step") -> str:
    """Say which rank the others waited for in a few steps, "" for none."""
    pause = judged.pause
    if pause is None or judged.straggler is None:
        return ""
    text = (
        f"At {noun} {pause.step:,} rank {pause.rank} held {_name_others(judged.straggler.others)} up "
        f"{format_duration(pause.waited_ns)}: {name_causes(pause.causes)}"
    )
    more = f", the longest of {pause.count} such waits" if pause.count > 1 else ""
    return f"{text}{more}. What is said of the other {_plural(noun)} leaves that out."


def _describe_usual(judged: Judgement, noun: str) -> str:
    straggler = judged.straggler
    if judged.apart_ns:
        return _describe_apart(judged.apart_ns)
    if judged.strangers is not None:
        return _describe_strangers(judged.strangers)
    if straggler is None:
        return "Only one rank has figures, so there is nothing to compare it with."
    if judged.heavy_stage is not None:
        return _describe_stage(judged.heavy_stage, judged, noun)
    if judged.handover is not None:
        return _describe_handover(judged.handover, straggler.others, noun)
    share = format_share(straggler.late_frac)
    others = "the median of the others" if straggler.others > 1 else "the other"
    if straggler.is_unsure and judged.rotation is None:
        return (
            f"Rank {straggler.rank} is behind {others} by {share} of the {noun}, but times vary so much that this may be "
            "chance."
        )
    if straggler.is_slow:
        return _describe_slow(straggler, judged, noun)
    if judged.rotation is not None:
        return _describe_rotation(judged.rotation, noun)
    if judged.is_hidden:
        return (
            f"The {_plural(noun)} of the ranks are equally long, and no rank was seen to wait for another: whether one of "
            "them holds the others up cannot be told."
        )
    least = f" A rank behind by {format_share(judged.least_frac)} of the {noun} or more would be named."
    if straggler.late_frac < LEAST_BEHIND_FRAC:
        return f"The ranks are alike: none is behind the others by as much as 0.1 % of the {noun}.{least}"
    return (
        f"The ranks are alike: the slowest, rank {straggler.rank}, is behind {others} by {share} of the {noun}.{least}"
    )


def _describe_stage(heavy: HeavyStage, judged: Judgement, noun: str) -> str:
    """Say which stage of a pipeline the others wait for."""
    who = format_ranks_named(heavy.ranks)
    return (
        f"Stage {heavy.stage} of the pipeline ({who}) computes {format_duration(heavy.own_ns)} a {noun}, the other stages "
        f"{format_duration(heavy.others_ns)}: with the same work in all stages the {noun} would be "
        f"{format_duration(heavy.gain_ns)} ({format_share(heavy.gain_ns / judged.step_ns)}) shorter."
    )


def _describe_apart(apart_ns: Mapping[int, int]) -> str:
    least, most = (choose(apart_ns, key=lambda rank: apart_ns[rank]) for choose in (min, max))
    return (
        f"The ranks do not leave their collectives together: from the first to the last that they share, rank {least} needs "
        f"{format_duration(apart_ns[least])} and rank {most} {format_duration(apart_ns[most])}. They may be of different "
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


def _describe_slow(straggler: Straggler, judged: Judgement, noun: str) -> str:
    who = _name_others(1 if straggler.others == 1 else straggler.others - len(judged.also_slow))
    slow = format_ranks_named(sorted([straggler.rank, *judged.also_slow])).capitalize()
    if judged.is_hidden:
        longer = format_duration(straggler.own_ns - straggler.others_ns)
        does, share = f"Rank {straggler.rank} takes {longer} longer than {who}", straggler.late_frac
    else:
        hold = "hold" if judged.also_slow else "holds"
        does, share = f"{slow} {hold} {who} up {format_duration(straggler.gain_ns)}", judged.gain_frac
    text = f"{does} a {noun} ({format_share(share)}): {name_causes(straggler.causes)}."
    if straggler.causes and straggler.causes[0].name == straggler.phase:
        owner = f"Rank {straggler.rank}'s" if judged.also_slow else "Its"
        before, now = format_duration(straggler.phase_others_ns), format_duration(straggler.phase_ns)
        text += f" {owner} {_name_cause(straggler.phase)} takes {now} against {before}."
    return text


def _describe_handover(found: Handover, others: int, noun: str) -> str:
    return (
        f"Before {noun} {found.step:,} rank {found.before} held {_name_others(others)} up "
        f"{format_duration(found.before_ns)} a {noun}, and rank {found.after} {format_duration(found.after_ns)} from then on."
    )


def _name_others(count: int) -> str:
    return "the other rank" if count == 1 else f"{count:,} others"


def _describe_rotation(rotation: Rotation, noun: str) -> str:
    return (
        f"The ranks take turns at coming last, and wait {format_duration(rotation.waited_ns)} of each {noun} "
        f"({format_share(rotation.waited_frac)}) for the last one: {name_causes(rotation.causes)}."
    )


def describe_evidence(judged: Judgement, noun: str = "step") -> str:
    """Say how often the rank came last, what mending it gains, and how well that is known; nothing without ranks."""
    if judged.straggler is None or judged.is_hidden:
        return ""
    straggler = judged.straggler
    text = ""
    if straggler.is_slow:
        who = f"Rank {straggler.rank}" if judged.also_slow or judged.handover is not None else "It"
        others = "the median of the others" if straggler.others > 1 else "the other"
        text = (
            f"{who} was the last in {_say_how_often(straggler, judged, noun)}, and is behind "
            f"{others} by {format_share(straggler.late_frac)} of the {noun}. "
        )
    elif judged.rotation is not None and judged.last_frac:
        most = max(judged.last_frac.values())
        text = f"No rank was the last in more than {format_share(most)} of {judged.steps:,} {_plural(noun)}. "
    if judged.left_out:
        few = "it has" if len(judged.left_out) == 1 else "they have"
        who = format_ranks_named(judged.left_out).capitalize()
        text += f"{who}: not compared, {few} too little in common with the others. "
    if judged.uneven_correlation is not None and not straggler.is_slow:
        text += (
            f"Forward and backward grow and shrink together (correlation {judged.uneven_correlation:.2f}), on another rank "
            "in each step, as batches of unlike length would. "
        )
    if judged.garbage is not None:
        text += (
            f"Garbage collection stops one rank or another for {format_duration(judged.garbage.pause_ns)}: collecting on "
            f"all ranks at the same step (gc.disable(), then gc.collect() every so many steps) gains "
            f"{format_duration(judged.garbage.gain_ns)} a {noun}. "
        )
    return text.strip()


def _say_how_often(straggler: Straggler, judged: Judgement, noun: str) -> str:
    text = f"{format_share(straggler.last_frac)} of {judged.steps:,} {_plural(noun)}"
    if straggler.longest is None:
        return text
    last, count = straggler.longest
    return f"{text}, among them {last:,} of the {count:,} in which the others waited by far the longest"


def _plural(noun: str) -> str:
    return "batches" if noun == "batch" else f"{noun}s"


def name_causes(causes: Sequence[Cause]) -> str:
    """Return what a rank does longer than the others, as a part of a sentence."""
    if not causes:
        return "what it does in that time was not seen"
    first = causes[0]
    if first.share_frac >= SURE_CAUSE_FRAC:
        return _name_cause(first.name)
    named = [f"{_name_cause(cause.name)} ({format_share(cause.share_frac)})" for cause in causes[:3]]
    return f"mostly {named[0]}" + (f", then {', '.join(named[1:])}" if named[1:] else "")


def _name_cause(name: str) -> str:
    return _CAUSE_WORDS.get(name) or PHASE_LABELS[name].lower()


def describe_communication(
    ranks: Sequence[RankSummary], rows: Sequence[CollectiveRow], judged: Judgement | None = None
) -> str:
    """Say who waited for whom in the collectives that were listed, and what the step's communication phase covers."""
    parts = []
    late = count_late(rows)
    matched = sum(late.values())
    if matched and (judged is None or (judged.source == "steps" and not judged.are_apart)):
        rank = max(late, key=lambda number: late[number])
        waits = {row.rank: 0 for row in rows}
        for row in rows:
            waits[row.rank] += row.wait_ns or 0
        longest = max(waits, key=lambda number: waits[number])
        who = f"rank {rank} came last to {late[rank]:,} of {matched:,}"
        waited = f"in these alone rank {longest} waited longest, {format_duration(waits[longest])} together"
        if late[rank] >= LATE_FRAC * matched:
            parts.append(f"Of the collectives that were listed, {who}; {waited}.")
        elif judged is None or judged.straggler is None or not judged.straggler.is_slow:
            parts.append(f"To the collectives that were listed the ranks came last by turns ({who}); {waited}.")
    if all(not rank.phases_ns.get("communication") for rank in ranks if rank.steps):
        parts.append(
            "No rank's training thread was seen to be held in a collective: what DistributedDataParallel reduces inside "
            "of the backward pass counts as backward, and waiting for a slow rank with it."
        )
    return " ".join(parts)
