"""What a run is bound by, what to change first, and what that would gain."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache

import profiler_server.diagnosis.rules as room
from collector.format.run import RankRun, Run
from collector.format.schema.errors import TableMissingError
from profiler_server.analysis.results import Abstention, BoundBy, Diagnosis, Suggestion
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Claim, Finding, Rule
from profiler_server.diagnosis.limits import MIN_STEPS
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import rank_claims, write_note, write_suggestion
from profiler_server.diagnosis.verdict import find_bound, say_verdict
from profiler_server.format import format_number_of
from profiler_server.store.kept import Kept
from profiler_server.store.stamps import stamp_rank

_DIAGNOSES: Kept[Diagnosis] = Kept(64)
Findings = list[tuple[Rule, Finding]]
_TRACE_LONGER = "Trace longer: give torch.profiler.schedule a larger `active`, and call prof.step() after every step."
_SEVERITIES = ("high", "medium", "low", "info")


def diagnose(run: Run, rank: int) -> Diagnosis:
    """Judge one rank of a run; the result is kept until a file of the run changes.

    A rank without steps gets the kind `unknown` and a sentence that says why. Raises RunNotFoundError,
    NewerSchemaError or TableBrokenError if the rank's manifest or its steps cannot be read.
    """
    run.rank(rank).manifest  # noqa: B018  fail on a broken rank before looking for its files
    stamp = tuple(stamp_rank(run.path, each) for each in run.ranks)  # the other ranks are what a straggler is told by
    return _DIAGNOSES.recall((run.key, rank), stamp, lambda: _judge_run(Run(run.path, run.redactor), rank))


def _judge_run(run: Run, rank: int) -> Diagnosis:
    try:
        case = measure_case(run, run.rank(rank))
    except TableMissingError:
        return _give_up(_explain_no_steps(run.rank(rank)))
    if case is None:
        return _give_up(_explain_no_steps(run.rank(rank)))
    return judge(case)


def _give_up(sentence: str) -> Diagnosis:
    return Diagnosis(BoundBy("unknown", None, None, 0.0), sentence, (), (), "Without steps there is nothing to judge.")


def _explain_no_steps(rank: RankRun) -> str:
    if rank.state == "recording":
        return "No step has ended yet; this page follows as they come."
    return "No steps were recorded: no optimizer step or evaluation batch ran while the profiler was on."


def judge(case: Case) -> Diagnosis:
    """Apply every rule to a case and order what they say.

    Under 20 steady steps no step time is predicted. A run of the collector has more of them within seconds, so its rules
    wait for those; a trace of a few steps is all that there is, so its rules say what they see.
    """
    steady = int(case.steps.selection.regular.sum())
    claims: list[Claim] = []
    notes: list[Suggestion] = []
    abstained = [_ask_for_steps(case, steady)]
    if steady >= MIN_STEPS:
        findings, abstained = _apply_rules(case)
        claims = rank_claims(case, findings)
        notes = _write_notes(case, findings, claims)
    elif case.is_imported:
        notes = _write_sightings(case, _apply_rules(case)[0], steady)
    notes.sort(key=lambda note: _SEVERITIES.index(note.severity))
    bound = find_bound(case)
    suggestions = (*(write_suggestion(case, claim) for claim in claims), *notes)
    silence = "" if suggestions else _explain_silence(case, steady)
    return Diagnosis(bound, say_verdict(case, bound, claims, notes), suggestions, tuple(abstained), silence)


def _explain_silence(case: Case, steady: int) -> str:
    if steady >= MIN_STEPS:
        return "No rule fired: nothing was found that a change would make faster."
    if case.is_imported:
        return "Nothing was found in these few steps that a change would make faster."
    return "The rules could not judge this run, for the reason below."


def _apply_rules(case: Case) -> tuple[Findings, list[Abstention]]:
    findings: Findings = []
    abstained: list[Abstention] = []
    for rule in find_rules():
        result = rule.judge(case)
        if isinstance(result, Finding):
            findings.append((rule, result))
        elif result is not None:
            abstained.append(result)
    return findings, abstained


def _write_notes(case: Case, findings: Findings, claims: Sequence[Claim]) -> list[Suggestion]:
    notes = [write_note(rule, finding) for rule, finding in findings if finding.what_if is None]
    if case.loading.is_starved and not claims:
        about = [(rule, finding) for rule, finding in findings if rule.stage == case.loading.bottleneck.stage]
        notes += [write_note(rule, finding, "low") for rule, finding in about if finding.what_if is not None]
    return notes


def _write_sightings(case: Case, findings: Findings, steady: int) -> list[Suggestion]:
    """Write out what would be claimed, were there more steps to be sure of the gain."""
    why = f"A step time is predicted from {MIN_STEPS} steady steps on; the trace has {steady}."
    claims = [claim for claim in rank_claims(case, findings) if not claim.instead_of]
    notes = [write_note(rule, finding, why=why) for rule, finding in findings if finding.what_if is None]
    return [*(write_note(claim.rule, claim.finding, "medium", why) for claim in claims), *notes]


def _ask_for_steps(case: Case, steady: int) -> Abstention:
    more = format_number_of(MIN_STEPS - steady, "more steady step")
    missing = f"{more}: {MIN_STEPS} are needed, the run has {steady}"
    if case.is_imported:
        return Abstention("all", f"{more}: {MIN_STEPS} are needed, the trace has {steady}", _TRACE_LONGER)
    return Abstention("all", missing, "Record longer: train for more steps before analyse().")


@cache
def find_rules() -> tuple[Rule, ...]:
    """Return every rule: each module of this room that has a RULE."""
    modules = (
        importlib.import_module(f"{room.__name__}.{entry.name}") for entry in pkgutil.iter_modules(room.__path__)
    )
    return tuple(module.RULE for module in modules if hasattr(module, "RULE"))
