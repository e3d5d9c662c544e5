"""The report's part on all ranks together: the rank for which the others wait, the cause, and why the job hangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.edge import Edge, attempt
from collector.format.run import Run
from collector.hangs.blame import Stop
from collector.hangs.live import Standing
from profiler_server.analysis.ranks.collectives import find_slow_call
from profiler_server.analysis.ranks.ends import End, Hang
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import judge_run, recall_what_if
from profiler_server.diagnosis.end_sentences import (
    describe_end,
    find_job_time,
    find_kind,
    list_attempt_lines,
    say_job_time,
)
from profiler_server.diagnosis.rank_sentences import (
    describe_evidence,
    describe_slow_call,
    describe_straggler,
    describe_unread,
)
from profiler_server.facts.job import (
    Alike,
    Apart,
    Handover,
    HeavyStage,
    NotJudged,
    RankComparison,
    RankVerdict,
    Slow,
    Strangers,
    Turns,
    UnevenWork,
    Unsure,
)
from profiler_server.facts.ranks import find_noun
from profiler_server.format import name_kind
from profiler_server.report.schema import PARTS, pick, spell_out

_OF_ONE = ("straggler", "rotation", "heavy_stage", "uneven_work", "handover", "apart_ns", "strangers")
_ZERO: Mapping[str, Any] = {
    "source": "steps",
    "meetings": 0,
    "steps": 0,
    "step_ns": 0.0,
    "residual_ns": (0.0, 0.0),
    "stages": 1,
}
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys((*PARTS["RankComparison"].split(), *_OF_ONE)),
    **_ZERO,
    "is_hidden": False,
    "left_out": (),
    "also_slow": (),
}
"""The report's keys for ranks that were not compared and have no verdict."""


def report_end(end: End | None) -> dict[str, Any] | None:
    """Return how the job ended too early, or stands still: kind, sentence, known details. None if `end` is None."""
    if end is None:
        return None
    is_told = isinstance(end, (Hang, Standing, Stop))  # other keys of the report have it
    known = {} if is_told else spell_out(end)
    return {"kind": find_kind(end), "sentence": describe_end(end), **known}


def report_attempts(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "attempt": line.number,
            "path": str(line.path),
            "steps": line.steps,
            "end": report_end(line.end),
            "is_this": line.is_this,
        }
        for line in list_attempt_lines(run)
    ]


def report_job_time(run: Run) -> dict[str, Any] | None:
    """Return what the time of all attempts was spent on; None (null in JSON) for a job that was started once."""
    found = find_job_time(run)
    return {"sentence": say_job_time(found), **spell_out(found)} if found is not None else None


def report_hang(end: End | None) -> dict[str, Any] | None:
    """Return why the job hangs, or why it hung until it was ended; None (null in JSON) if no hang is known.

    The reason was found in dumps of the job's collectives, or in the recording.
    """
    if isinstance(end, Standing):
        return _report_standing(end)
    if isinstance(end, Stop):
        return _report_stop(end, "ended", describe_end(end))
    return {"sentence": describe_end(end), **spell_out(end)} if isinstance(end, Hang) else None


def _report_standing(found: Standing) -> dict[str, Any]:
    sentence = describe_end(found)
    if found.stop is not None:
        return _report_stop(found.stop, "standing", sentence)
    places = [place.rank for place in found.places]
    return {**_report_nothing("standing", sentence), "missing": list(found.gone), "waiting": places}


def _report_stop(stop: Stop, cause: str, sentence: str) -> dict[str, Any]:
    return {
        **_report_nothing(cause, sentence),
        "group": stop.group.title if stop.group is not None else "",
        "sequence": stop.number,
        "name": stop.name,
        "missing": [place.rank for place in stop.missing],
        "waiting": list(stop.waiting),
    }


def _report_nothing(cause: str, sentence: str) -> dict[str, Any]:
    return {"sentence": sentence, "cause": cause, "group": "", "sequence": None, "name": ""}


def report_judgement(run: Run, warnings: list[str]) -> dict[str, Any] | None:
    """Return the verdict on the ranks: which rank the others wait for, the cause, and the gain of removing the cause.

    None if the ranks cannot be compared, for example if there is only one. A failure adds an entry to `warnings`.
    """

    def judge() -> dict[str, Any] | None:
        ranks = summarize_ranks(run)
        verdict, noun = judge_run(run, ranks), find_noun(ranks)
        if len(run.ranks) > len(ranks):
            warnings.append(describe_unread(len(run.ranks)))
        if isinstance(verdict, NotJudged):
            return None
        words = {"sentence": describe_straggler(verdict, noun), "evidence": describe_evidence(verdict, noun)}
        return {**words, "ranks_read": len(ranks), **spell_out(list_verdict(verdict))}

    problem = "the ranks cannot be compared"
    return attempt(judge, lambda error: warnings.append(f"{problem}: {type(error).__name__}: {error}"[:300]))


def list_verdict(verdict: RankVerdict) -> dict[str, Any]:
    """Return a verdict with the keys of `report --json`. Keys that this kind of verdict lacks are null or empty."""
    comparison = verdict.comparison
    found: dict[str, Any] = {
        **_NOTHING,
        "verdict": name_kind(verdict),
        "culprits": verdict.culprits,
        "gain_ns": verdict.gain_ns,
    }
    if comparison is not None:
        latest = pick(comparison.latest) | _list_latest(verdict, comparison)
        found |= {"straggler": latest, **pick(comparison)}
    match verdict:
        case NotJudged():
            found["left_out"] = verdict.left_out
        case Apart():
            found["apart_ns"] = verdict.lasted_ns
        case Strangers():
            found["strangers"] = pick(verdict)
        case Slow():
            found["also_slow"] = verdict.also_slow
        case Handover():
            found["handover"] = pick(verdict)
        case HeavyStage():
            found["heavy_stage"] = {"ranks": verdict.culprits, **pick(verdict)}
        case UnevenWork():
            found["uneven_work"] = pick(verdict)
        case Turns():
            waited_ns = verdict.gain_ns
            waited_frac = verdict.comparison.share(waited_ns)
            found["rotation"] = {"waited_ns": waited_ns, "waited_frac": waited_frac, **pick(verdict)}
        case Unsure() | Alike():
            pass
    return found


def _list_latest(verdict: RankVerdict, comparison: RankComparison) -> dict[str, Any]:
    latest = comparison.latest
    return {
        "others": comparison.others,
        "behind_frac": (latest.own_ns - latest.others_ns) / latest.others_ns if latest.others_ns else 0.0,
        "last_frac": comparison.last_frac.get(latest.rank, 0.0),
        "is_slow": isinstance(verdict, (Slow, Handover)),
        "is_unsure": isinstance(verdict, Unsure),
        "longest": verdict.longest if isinstance(verdict, Slow) else None,
        "stretch": pick(verdict.stretch) if isinstance(verdict, Slow) else None,
    }


def report_slow_call(run: Run) -> dict[str, Any] | None:
    with Edge(lambda error: None):  # the judgement reads the same data, and warns
        ranks = summarize_ranks(run)
        if (call := find_slow_call(ranks)) is not None:
            return {"sentence": describe_slow_call(call, find_noun(ranks)), **spell_out(call)}
    return None


def report_what_if(run: Run, warnings: list[str]) -> dict[str, Any] | None:
    """Return how much the differences between ranks cost the job; None for one rank. If no model fits the steps, return
    None and add an entry to `warnings`.
    """
    ranks = summarize_ranks(run)
    found = recall_what_if(run, ranks)
    if found is None:
        return None
    if found.slowdown is None:
        warnings.append(f"no what-if figures: {found.reason}")
        return None
    comparison = judge_run(run, ranks).comparison
    gains = found.mend_rank_gain_ns or (comparison.blame_ns if comparison is not None else {})
    known: dict[str, Any] = spell_out(found)
    return known | {
        "by_operation": known["by_operation"] or {},
        "by_rank": known["by_rank"] or {},
        "by_stage": known["by_stage"] or None,
        "mend_rank_gain_ns": spell_out(gains, "mend_rank_gain_ns"),
    }
