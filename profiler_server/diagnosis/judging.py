"""The diagnosis of a rank: what its steps are bound by, the first change to make, and the gain of this change."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import profiler_server.diagnosis.rules as room
from collector.edge import Edge
from collector.format.run import RankRun, Run
from collector.format.schema.errors import TableMissingError, read_or
from collector.plugins import explain_failure, search_room
from profiler_server.analysis.data.replicas import read_stages
from profiler_server.analysis.data.stages import select_own, summarize_own
from profiler_server.analysis.ranks.ending import count_ended, find_end
from profiler_server.analysis.ranks.ends import Hang
from profiler_server.analysis.ranks.hang import describe_status
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.bottleneck import find_own_bottleneck
from profiler_server.diagnosis.end_sentences import explain_end, recall_standstills, say_first
from profiler_server.diagnosis.limits.facts import MIN_STEPS
from profiler_server.diagnosis.limits.lines import MOST_HOT, weigh_line
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import (
    Fixed,
    make_claim,
    rank_claims,
    say_misfit,
    split_findings,
    write_note,
    write_suggestion,
)
from profiler_server.diagnosis.verdict import explain_few, find_bound, say_limit, say_verdict
from profiler_server.facts.case import Abstention, Case, Claim, Finding, Rule
from profiler_server.facts.results import BoundBy, Diagnosis, Suggestion
from profiler_server.format import form_plural, format_number_of, speak_of

Findings = list[tuple[Rule, Finding]]
_TRACE_LONGER = "Trace longer: give torch.profiler.schedule a larger `active`, and call prof.step() after every step."
_log = logging.getLogger("stepscope")
_SEVERITIES = ("high", "medium", "low", "info")


def diagnose(run: Run, rank: int) -> Diagnosis:
    """Return the diagnosis of one rank of a run.

    A rank without steps gets the kind `pipeline` if it recorded stages of the user's own pipeline. Otherwise it gets
    the kind `unknown` and a sentence with the reason. Raises RunNotFoundError, NewerSchemaError or TableBrokenError if
    the rank's manifest or its steps cannot be read.
    """
    run.rank(rank).manifest  # noqa: B018  fail on a broken rank before looking for its files
    return _judge_run(Run(run.path, run.redactor), rank)


@derived()
def _judge_run(run: Run, rank: int) -> Diagnosis:
    """Return the diagnosis of a rank. If its job ended badly or stands still, the `sentence` begins with how."""
    found = _judge_steps(run, rank)
    end = say_first(run, has_steps=count_ended(run) > 0)
    stood = recall_standstills(run.read_rank(number) for number in run.ranks)
    detail = explain_end(find_end(run))
    until_then = f"Until then: {found.limit}" if end and found.limit else ""
    told = (end, detail, until_then, stood) if end else (found.sentence, stood)
    return replace(found, sentence=" ".join(filter(None, told)), end=end, end_detail=detail)


def _judge_steps(run: Run, rank: int) -> Diagnosis:
    try:
        case = measure_case(run, run.rank(rank))
    except TableMissingError:
        case = None
    if case is not None:
        with speak_of(case.steps.noun):
            return judge(case)
    if isinstance(find_end(run), Hang):
        silence = "Mend what holds the job; advice is about steps."
        return Diagnosis(BoundBy("unknown", None, None, 0.0), "", (), (), silence)
    if status := describe_status(run):
        return Diagnosis(BoundBy("unknown", None, None, 0.0), status, (), (), "A status has no steps to judge.")
    return _judge_pipeline(run.rank(rank))


def _judge_pipeline(rank: RankRun) -> Diagnosis:
    """Return the diagnosis of a rank without steps: bound by a stage of its own pipeline, or unknown."""
    why = _explain_no_steps(rank)
    stages = read_or(None, read_stages, rank, None)
    own = () if stages is None else read_or((), summarize_own, select_own(stages))
    if not own:
        return Diagnosis(BoundBy("unknown", None, None, 0.0), why, (), (), "Without steps there is nothing to judge.")
    limit = find_own_bottleneck(own)
    items = max(stage.summary.count for stage in own)
    busy = next((stage.summary.busy_frac for stage in own if stage.name == limit.stage), None)
    sure = min(1.0, items / MIN_STEPS) ** 0.5
    words = (
        f"sure: measured over {items:,} items"
        if items >= MIN_STEPS
        else f"unsure: {format_number_of(items, 'item')} only"
    )
    limited = f"Limited by {limit.stage}" if limit.stage is not None else "No stage of the pipeline is the limit"
    silence = "Suggestions are about steps, and this run has none."
    bound = BoundBy("pipeline", limit.stage, busy, sure, words)
    return Diagnosis(bound, f"{limited}: {limit.reason}", (), (), silence)


def _explain_no_steps(rank: RankRun) -> str:
    if rank.state == "recording":
        return "No step has ended yet; this page follows as they come."
    return "No steps were recorded: no optimizer step or evaluation batch ran while the profiler was on."


def judge(case: Case) -> Diagnosis:
    """Apply every rule to a case, and return the diagnosis with its suggestions in order.

    No step time is predicted from fewer than 20 steady steps. A recorded run has 20 steps within seconds, so no rule is
    applied to fewer. A trace of a few steps never gets more, so rules are applied to any trace.
    """
    steady = case.steps.steady
    heard = Heard([], [_ask_for_steps(case, steady)], [])
    claims: list[Claim] = []
    notes: list[Suggestion] = []
    if steady >= MIN_STEPS:
        heard = hear_rules(case)
        believed, doubted = split_findings(case, heard.findings)
        claims = rank_claims(case, believed)
        notes = _write_notes(case, heard.findings, claims, doubted)
    elif case.is_imported:
        heard = replace(hear_rules(case), abstained=heard.abstained)
        notes = _write_sightings(case, heard.findings, steady)
    notes.sort(key=lambda note: _SEVERITIES.index(note.severity))
    bound = find_bound(case)
    leads = _find_leads(case, heard.findings, claims)
    notes = [note for note in notes if note.rule not in {lead.rule for lead in leads}]
    known = (*leads, *(write_suggestion(case, claim) for claim in claims), *notes)
    looks = _choose_looks(case, known, heard.findings)
    remarks = [entry for entry in known if entry.severity == "info"]
    suggestions = (*(entry for entry in known if entry.severity != "info"), *looks, *remarks)
    return Diagnosis(
        bound_by=bound,
        sentence=say_verdict(case, bound, claims, notes, leads, looks),
        suggestions=suggestions,
        abstained=tuple(heard.abstained),
        silence="" if suggestions else _explain_silence(case, steady),
        warnings=tuple(heard.failures),
        limit=say_limit(case, bound),
        lines=case.lines,
    )


def _choose_looks(case: Case, known: Sequence[Suggestion], findings: Findings) -> list[Suggestion]:
    """Return the findings worth a look, as suggestions, without those whose function or line one of `known` names that
    is no remark.

    They are sorted by weight. The second finding of a rule is chosen only if no other rule has one.
    """
    looks: list[tuple[int, float, Suggestion]] = []
    nth: Counter[str] = Counter()
    asked = [entry for entry in known if entry.severity != "info"]
    for rule, found in sorted(findings, key=lambda entry: -_weigh(case, entry[1])):
        if found.subject and not _names((*asked, *(look for _, _, look in looks)), found):
            looks.append((nth[rule.id], -_weigh(case, found), write_note(rule, found, "info")))
            nth[rule.id] += 1
    chosen = sorted(looks, key=lambda entry: entry[:2])[:MOST_HOT]
    return [look for _, _, look in sorted(chosen, key=lambda entry: entry[1])]


def _weigh(case: Case, found: Finding) -> float:
    """Return the share of the step that a finding could save at most. A finding with a change or a pattern counts twice,
    because a line with neither may be fine as it is. Of those, the forward of a module counts half.
    """
    least_ns, mean_ns = found.least_step_ns, case.steps.mean_ns
    saved_frac = 1.0 - least_ns / mean_ns if least_ns is not None and mean_ns else 0.0
    return saved_frac * weigh_line(found.subject, found.severity != "info")


def _names(known: Sequence[Suggestion], found: Finding) -> bool:
    return any(found.subject in f"{entry.title} {entry.measured} {entry.advice}" for entry in known)


def _find_leads(case: Case, findings: Findings, claims: Sequence[Claim]) -> list[Suggestion]:
    """Return suggestions that save more time between the steps than any claim saves in a step. They are shown first."""
    if not claims:
        return []
    most = max(1.0 - claim.usual_ns / case.steps.mean_ns for claim in claims)
    return [write_note(rule, found, "medium") for rule, found in findings if found.saved_per_step_frac > most]


def _explain_silence(case: Case, steady: int) -> str:
    if steady >= MIN_STEPS:
        return f"No rule found a change that would clearly make a {case.steps.noun} faster."
    if case.is_imported:
        if case.loading.is_input_bound and case.loading.batches is None:
            return "A trace does not say how its input was made: record the run with Stepscope for advice on that."
        return "Nothing was found in these few steps that would make them faster."
    return f"Advice needs {MIN_STEPS} steady {form_plural(case.steps.noun)}; this run has {steady:,}."


@dataclass(frozen=True)
class Heard:
    """The results of all rules: findings, rules that lack a signal, and one line of text for each rule that failed."""

    findings: Findings
    abstained: list[Abstention]
    failures: list[str]


def hear_rules(case: Case) -> Heard:
    """Apply every rule to a case. A rule that fails gives no finding and does not stop the others."""
    found = find_rules()
    heard = Heard([], [], [*found.failures])
    start = Fixed(case.loading.loop.model, case.steps.mean_ns, {})
    for rule in found.rules:
        with _edge(f"The rule {rule.id} failed", heard.failures):
            result = rule.judge(case)
            for each in result if isinstance(result, tuple) else (result,):
                if isinstance(each, Abstention):
                    heard.abstained.append(each)
                elif each is not None:
                    if each.what_if is not None:
                        # Called here, so that a change that cannot be simulated fails at this place.
                        make_claim(case, rule, each, start)
                    heard.findings.append((rule, each))
    return heard


def _edge(what: str, failures: list[str]) -> Edge:
    """Return a context that adds a line to `failures` if its body raises, because a rule may meet unexpected data."""

    def tell(error: Exception) -> None:
        _log.warning("%s: %r", what, error, exc_info=error)
        failures.append(f"{what} and is left out: {explain_failure(error)}")

    return Edge(tell)


def _write_notes(case: Case, findings: Findings, claims: Sequence[Claim], doubted: Findings) -> list[Suggestion]:
    notes = [write_note(rule, finding) for rule, finding in findings if finding.what_if is None and not finding.subject]
    worth = [claim for claim in rank_claims(case, doubted) if not claim.instead_of]
    notes += [write_note(claim.rule, claim.finding, "medium", say_misfit(case)) for claim in worth]
    said = {claim.rule.id for claim in (*claims, *worth)}
    notes += [write_note(rule, found.otherwise) for rule, found in findings if found.otherwise and rule.id not in said]
    if case.loading.is_starved and not claims and not worth:
        why = say_misfit(case) if doubted else ""
        stage = "loader" if case.loading.takes_whole_batches else case.loading.bottleneck.stage
        about = [(rule, finding) for rule, finding in findings if rule.stage == stage]
        notes += [write_note(rule, finding, "low", why) for rule, finding in about if finding.what_if is not None]
    return notes


def _write_sightings(case: Case, findings: Findings, steady: int) -> list[Suggestion]:
    """Return the findings as suggestions without a gain, for a trace with too few steps to predict one."""
    why = f"A step time is predicted from {MIN_STEPS} steady steps on; the trace has {steady}."
    claims = [claim for claim in rank_claims(case, findings) if not claim.instead_of]
    notes = [
        write_note(rule, found, why=why) for rule, found in findings if found.what_if is None and not found.subject
    ]
    return [*(write_note(claim.rule, claim.finding, "medium", why) for claim in claims), *notes]


def _ask_for_steps(case: Case, steady: int) -> Abstention:
    more = format_number_of(MIN_STEPS - steady, f"more steady {case.steps.noun}")
    missing = f"{more} ({MIN_STEPS} are needed, the run has {steady})"
    if case.is_imported:
        return Abstention("all", f"{more} ({MIN_STEPS} are needed, the trace has {steady})", _TRACE_LONGER)
    if why := explain_few(case):
        return Abstention("all", missing, why)
    noun = case.steps.noun
    more_of = "train for more steps" if noun == "step" else f"run more {form_plural(noun)}"
    return Abstention("all", missing, f"Record longer: {more_of} before analyse().")


@dataclass(frozen=True)
class Room:
    """All rules that were found, and one line of text for each module of rules that could not be imported."""

    rules: tuple[Rule, ...]
    failures: tuple[str, ...]


@cache
def find_rules() -> Room:
    """Return all rules, sorted by id, of the modules that define RULES, and text on modules that cannot be imported."""
    found = search_room(room, "RULES")
    failures = (f"The rules in {file.name} cannot be imported and are left out: {file.reason}" for file in found.broken)
    rules = sorted((rule for module in found.modules for rule in module.RULES), key=lambda rule: rule.id)
    return Room(tuple(rules), tuple(failures))
