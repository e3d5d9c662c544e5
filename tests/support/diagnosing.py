"""What is found of a planted run: its facts, its diagnosis, one of its suggestions, or what a rule promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collector.format.run import Run
from profiler_server.diagnosis.judging import diagnose, find_rules
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import Fixed, make_claim
from profiler_server.facts.case import Case, Claim
from profiler_server.facts.results import Diagnosis, Suggestion
from profiler_server.format import say_gain
from tests.support import facts as make
from tests.support.cases import Plant, build_case_run

Golden = Callable[[str, str], None]


def diagnose_plant(path: Path, plant: Plant) -> Diagnosis:
    return diagnose(build_case_run(path, plant), 0)


def advise(path: Path, plant: Plant, rule: str) -> Suggestion:
    """Return what a rule suggests for a run of which it speaks."""
    return next(entry for entry in diagnose_plant(path, plant).suggestions if entry.rule == rule)


def measure(run: Run) -> Case:
    case = measure_case(run, run.rank(0))
    assert case is not None
    return case


def promise(case: Case, name: str) -> Claim:
    """Return what a rule promises of a run, whether it is worth saying or not."""
    rule = next(entry for entry in find_rules().rules if entry.id == name)
    return make_claim(case, rule, make.find(case, name), Fixed(case.loading.loop.model, case.steps.mean_ns, {}))


def write_out(found: Diagnosis, rule: str = "") -> str:
    """Return all that is shown of a diagnosis: of each suggestion, or of one, a line for each part of it."""
    bound = found.bound_by
    share = "" if bound.share_frac is None else f" {bound.share_frac:.1%}"
    noted = f"{bound.kind} {bound.stage or ''}{share}, {bound.confidence}\n{found.sentence}\n"
    noted += "".join(f"\n{_write_suggestion(said)}" for said in found.suggestions if rule in ("", said.rule))
    if not rule:
        noted += "".join(f"\n{lack.rule} lacks {lack.missing}: {lack.how}\n" for lack in found.abstained)
        noted += f"\n{found.silence}\n" if found.silence else ""
    return noted


def _write_suggestion(said: Suggestion) -> str:
    parts = {
        "measured": said.measured,
        "threshold": said.threshold,
        "advice": said.advice,
        "change": said.change.replace("\n", "\n    "),
        "fix": said.fix,
        "gain": f"{say_gain(said)}; {said.severity}",
        "shown": "; ".join(f"{seen.page}?{seen.query} {seen.text}" for seen in said.evidence),
    }
    return f"{said.rule}: {said.title}\n" + "".join(f"  {name}: {text}\n" for name, text in parts.items())
