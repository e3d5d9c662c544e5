"""What the report says of all ranks together: who holds the job up, by what, and why it hangs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from collector.edge import Edge
from collector.format.run import Run
from collector.hangs.blame import Stop
from collector.hangs.live import Standing
from profiler_server.analysis.ranks.collectives import find_slow_call
from profiler_server.analysis.ranks.ends import CutOff, End, Hang, Killed, LeftOut, Mismatch, Raised, Severed
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.what_if.pipelines import judge_run, recall_what_if
from profiler_server.diagnosis.end_sentences import describe_end, list_attempt_lines
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

_COMPARED = tuple(field.name for field in dataclasses.fields(RankComparison) if field.name != "latest")
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
    **dict.fromkeys((*_COMPARED, *_OF_ONE)),
    **_ZERO,
    "is_hidden": False,
    "left_out": (),
    "also_slow": (),
}
"""What is listed of ranks that were not compared, and have no verdict."""

KINDS: Mapping[type[End], str] = {
    Hang: "hang",
    Standing: "standing",
    Stop: "waited",
    LeftOut: "left_out",
    Mismatch: "mismatch",
    Raised: "raised",
    Killed: "killed",
    CutOff: "cut_off",
    Severed: "severed",
}


def report_end(end: End | None) -> dict[str, Any] | None:
    """Return how the job ended, or how it stands still: its kind, a sentence, and what is known of it; null for neither."""
    if end is None:
        return None
    return {"kind": KINDS[type(end)], "sentence": describe_end(end), **_list_known(end)}


def _list_known(end: End) -> dict[str, Any]:
    """Return the fields of an end; one that other keys of the report spell out has none."""
    return {} if isinstance(end, (Hang, Standing, Stop)) else _spell_out(dataclasses.asdict(end))


def report_attempts(run: Run) -> list[dict[str, Any]]:
    """List the attempts of the job that the run is of; none for a job that was started once."""
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


def report_hang(end: End | None) -> dict[str, Any] | None:
    """Return why the job hangs, by dumps of its collectives or while it records, or hung when it was killed.

    Null where none tells of one.
    """
    if isinstance(end, Standing):
        return _report_standing(end)
    if isinstance(end, Stop):
        return _report_stop(end, "ended", describe_end(end))
    if not isinstance(end, Hang):
        return None
    return {
        "sentence": end.sentence,
        "cause": end.cause,
        "group": end.group,
        "sequence": end.sequence,
        "name": end.name,
        "missing": list(end.missing),
        "waiting": list(end.waiting),
    }


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
    """Return who holds the job up, by what, and what mending it gains; null for one rank."""
    found: list[dict[str, Any]] = []
    with Edge(lambda error: warnings.append(f"the ranks cannot be compared: {type(error).__name__}: {error}"[:300])):
        ranks = summarize_ranks(run)
        verdict, noun = judge_run(run, ranks), find_noun(ranks)
        if not isinstance(verdict, NotJudged):
            words = {"sentence": describe_straggler(verdict, noun), "evidence": describe_evidence(verdict, noun)}
            found.append({**words, "ranks_read": len(ranks), **_spell_out(list_verdict(verdict))})
        if len(run.ranks) > len(ranks):
            warnings.append(describe_unread(len(run.ranks)))
    return found[0] if found else None


def list_verdict(verdict: RankVerdict) -> dict[str, Any]:
    """Return a verdict as the keys of `report --json` have it: what another verdict would hold is null or empty."""
    comparison = verdict.comparison
    found: dict[str, Any] = {
        **_NOTHING,
        "verdict": _name_kind(verdict),
        "culprits": verdict.culprits,
        "gain_ns": verdict.gain_ns,
    }
    if comparison is not None:
        own = dataclasses.asdict(comparison)
        found |= {"straggler": {**own.pop("latest"), **_list_latest(verdict, comparison)}, **own}
    match verdict:
        case NotJudged():
            found["left_out"] = verdict.left_out
        case Apart():
            found["apart_ns"] = verdict.lasted_ns
        case Strangers():
            found["strangers"] = dataclasses.asdict(verdict)
        case Slow():
            found["also_slow"] = verdict.also_slow
        case Handover():
            found["handover"] = _list_own(verdict)
        case HeavyStage():
            found["heavy_stage"] = {"ranks": verdict.culprits, **_list_own(verdict)}
        case UnevenWork():
            found["uneven_work"] = _list_own(verdict)
        case Turns():
            own = _list_own(verdict)
            waited_ns = own.pop("gain_ns")
            found["rotation"] = {"waited_ns": waited_ns, "waited_frac": verdict.comparison.share(waited_ns), **own}
        case Unsure() | Alike():
            pass
    return found


def _name_kind(verdict: RankVerdict) -> str:
    return re.sub(r"\B([A-Z])", r"_\1", type(verdict).__name__).lower()


def _list_own(verdict: Handover | HeavyStage | UnevenWork | Turns) -> dict[str, Any]:
    """Return the fields that no other verdict has."""
    found = dataclasses.asdict(verdict)
    return {name: value for name, value in found.items() if name not in ("comparison", "culprits")}


def _list_latest(verdict: RankVerdict, comparison: RankComparison) -> dict[str, Any]:
    latest = comparison.latest
    return {
        "others": comparison.others,
        "behind_frac": (latest.own_ns - latest.others_ns) / latest.others_ns if latest.others_ns else 0.0,
        "last_frac": comparison.last_frac.get(latest.rank, 0.0),
        "is_slow": isinstance(verdict, (Slow, Handover)),
        "is_unsure": isinstance(verdict, Unsure),
        "longest": verdict.longest if isinstance(verdict, Slow) else None,
        "stretch": dataclasses.asdict(verdict.stretch) if isinstance(verdict, Slow) and verdict.stretch else None,
    }


def report_slow_call(run: Run) -> dict[str, Any] | None:
    """Return the collective that is slow beside the others of its group; null where there is none."""
    found: list[dict[str, Any]] = []
    with Edge(lambda error: None):  # the judgement reads the same, and warns
        ranks = summarize_ranks(run)
        if (call := find_slow_call(ranks)) is not None:
            sentence = describe_slow_call(call, find_noun(ranks))
            found.append({"sentence": sentence, **_spell_out(dataclasses.asdict(call))})
    return found[0] if found else None


def _spell_out(value: Any, name: str = "") -> Any:
    """Return a value as JSON has it: keys are texts, and times whole ns."""
    is_time = name.endswith("_ns")
    if isinstance(value, Mapping):
        return {str(key): _spell_out(inner, name if is_time else str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spell_out(inner, name) for inner in value]
    return round(value) if is_time and isinstance(value, float) else value


def report_what_if(run: Run, warnings: list[str]) -> dict[str, Any] | None:
    """Return what unlike ranks cost the job; null for one rank, and with a warning where no model meets the steps."""
    ranks = summarize_ranks(run)
    found = recall_what_if(run, ranks)
    if found is None:
        return None
    if found.slowdown is None:
        warnings.append(f"no what-if figures: {found.reason}")
        return None
    comparison = judge_run(run, ranks).comparison
    gains = found.mend_rank_gain_ns or (comparison.blame_ns if comparison is not None else {})
    return {
        "slowdown": found.slowdown,
        "waste_frac": found.waste_frac,
        "discrepancy_frac": found.discrepancy_frac,
        "by_operation": dict(found.by_operation or {}),
        "by_rank": {str(rank): value for rank, value in (found.by_rank or {}).items()},
        "by_stage": {str(stage): value for stage, value in (found.by_stage or {}).items()} or None,
        "worker_share": found.worker_share,
        "stage_share": found.stage_share,
        "mend_rank_gain_ns": {str(rank): round(gain) for rank, gain in gains.items()},
        "method": found.method,
    }
