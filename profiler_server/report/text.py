"""The report of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collector.edge import Edge, attempt
from collector.format.phases import PHASE_LABELS, list_phases
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.steps import (
    PERCENTILE_LABELS,
    PERCENTILES,
    explain_left_out,
    select_steps,
    summarize_evaluation,
    summarize_phases,
)
from profiler_server.analysis.memory.memory import read_memory
from profiler_server.analysis.operators.kernels import name_kernels
from profiler_server.analysis.ranks.collectives import find_slow_call, summarize_collectives
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.steps.requests import summarize_other_calls, summarize_requests
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.diagnosis.end_sentences import (
    find_job_time,
    list_attempt_lines,
    say_attempts,
    say_job_time,
    spell_reports,
)
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.rank_sentences import describe_ranks, describe_unread
from profiler_server.diagnosis.readings import say_completeness, say_host_waits
from profiler_server.diagnosis.request_sentences import describe_requests, say_latency
from profiler_server.facts.results import Diagnosis
from profiler_server.facts.steps import Held, NamedFunction
from profiler_server.format import (
    clean_name,
    form_plural,
    format_bytes,
    format_change,
    format_duration,
    format_number_of,
    format_phase_shares,
    format_ranks,
    format_share,
    say_gain,
)
from profiler_server.report.outcome import list_outcome_lines
from profiler_server.report.useful import list_useful_lines
from profiler_server.words.phrases import spell_function, spell_share

_MOST_HELD, _MOST_SLOW = 5, 5
_MOST_LINES = 3
_LEAST_FRAC = 0.05
"""Share of a phase below which a function has no line in the text."""
_MOST_DESCRIBED = 4
"""The most ranks that a report on a terminal describes in full. More would push its suggestions out of sight."""
NOTHING_PAYS = "No change is sure to pay."


def render_text(report: dict[str, Any], run: Run, rank: int | None = None) -> str:
    """Return `report`, of all ranks or of `rank`, as text that ends in a newline. `run` has what `report` lacks."""
    head = report["run"]
    created = head["created"][:19].replace("T", " ")
    state = f"{head['state']}, recovered" if head["is_recovered"] else head["state"]
    ranks = format_ranks(len(run.ranks), head["world_size"])
    source = "recorded" if head["source"] == "collector" else f"{head['source'].replace('_', ' ')} format"
    origin = ", ".join(
        part for part in (state, source, ranks, f"on {head['host']}" if head["host"] else "", f"{created} UTC") if part
    )
    verdict = say_verdict(run, rank)
    parts = [
        f"{head['name']}  ({origin})",
        verdict,
        _render_attempts(run, verdict),
        render_history(report["history"]),
        "\n".join(list_outcome_lines(report["outcome"])),
        *_render_ranks(report["ranks"], run, rank),
        _render_comparison(run),
        _render_suggestions(report, run, rank),
    ]
    if report["abstained"]:
        lines = list(list_lacks(report["abstained"]))
        parts.append("\n".join(["Not judged", *lines]))
    if report["warnings"]:
        parts.append("\n".join(["Warnings", *(f"  {warning}" for warning in report["warnings"])]))
    return "\n\n".join(part for part in parts if part) + "\n"


def say_verdict(run: Run, rank: int | None = None) -> str:
    """Return text on what bounds the steps of a rank (by default the first), and on how sure this is."""
    found = _diagnose(run, rank)
    if found is None:
        return "What the run is bound by cannot be said; the warnings say why."
    sure = found.bound_by.confidence
    return f"{found.sentence} {sure[:1].upper()}{sure[1:]}." if sure else found.sentence


def explain_silence(run: Run, rank: int | None = None) -> str:
    """Return a sentence on why no change is suggested; "" if one is suggested."""
    found = _diagnose(run, rank)
    return found.silence if found else "The run could not be judged."


def _diagnose(run: Run, rank: int | None) -> Diagnosis | None:
    if rank is None and not run.ranks:
        return None
    return attempt(lambda: diagnose(run, run.ranks[0] if rank is None else rank))  # a failure is among the warnings


def render_history(history: dict[str, Any] | None) -> str:
    if history is None:
        return ""
    word = "slower" if history["change_frac"] > 0 else "faster"
    return (
        f"History: {word} since {clean_name(history['since'])}: the median step of the "
        f"{format_number_of(history['after'], 'run')} since then is {format_duration(history['after_ns'])}, "
        f"{format_change(history['change_frac'])} against {format_duration(history['before_ns'])} of the "
        f"{format_number_of(history['before'], 'run')} before."
    )


def choose_described(run: Run) -> Sequence[int]:
    """Return the ranks that the text describes: every rank of a small run.

    For a large run, return the first rank, and the ranks for which the others wait.
    """
    if len(run.ranks) <= _MOST_DESCRIBED:
        return run.ranks
    culprits: tuple[int, ...] = ()
    with Edge(lambda error: None):  # said where the ranks are compared
        culprits = judge_run(run, summarize_ranks(run)).culprits
    return [rank for at, rank in enumerate(run.ranks) if at == 0 or rank in culprits][:_MOST_DESCRIBED]


def list_lacks(abstained: list[dict[str, str]]) -> Iterator[str]:
    """Yield a line for each thing to do: the rules that need it, what they miss now, and what to do."""
    for how in dict.fromkeys(entry["how"] for entry in abstained):
        same = [entry for entry in abstained if entry["how"] == how]
        rules = ", ".join(entry["rule"] for entry in same)
        yield f"  {rules}: missing: {'; '.join(dict.fromkeys(entry['missing'] for entry in same))}. {how}"


def _render_ranks(ranks: list[dict[str, Any]], run: Run, rank: int | None) -> list[str]:
    described = choose_described(run) if rank is None else (rank,)
    found = [_render_rank(each, run) for each in ranks if each["rank"] in described]
    if rank is not None or len(found) == len(run.ranks):
        return found
    more = format_number_of(len(run.ranks) - len(found), "more rank")
    return [*found, f"{more}: stepscope report RUN --rank N describes one, --json all."]


def _render_rank(rank: dict[str, Any], run: Run) -> str:
    steps, times = rank["steps"], rank["steps"]["duration_ns"]
    trace = [f"  trace     {say_completeness(rank['completeness'])}"] if rank["completeness"] else []
    if times is None:
        return "\n".join([f"Rank {rank['rank']}: {_explain_no_steps(rank, run)}", *trace, *_render_pipeline(rank)])
    rows = read_step_rows(run.rank(rank["rank"]))
    noun = rows.noun
    left_out = explain_left_out(select_steps(rows.steps).left_out, noun)
    lines = [
        f"Rank {rank['rank']}: {format_number_of(steps['count'], noun)}{f'; {left_out}' if left_out else ''}",
        *trace,
        f"  {noun:<9} {_render_times(steps['duration_ns'], noun)}",
        *([f"            {steps['percentiles_missing']}"] if steps["percentiles_missing"] else []),
    ]
    lines += _render_requests(run.rank(rank["rank"]), noun)
    shares = format_phase_shares({phase["name"]: phase["share_frac"] for phase in rank["phases"]})
    present = {phase["name"] for phase in rank["phases"] if phase["mean_ns"]}
    known = {phase.name for phase in list_phases(noun, present)}
    means_ns = {phase.name: phase.mean_ns for phase in summarize_phases(rows.steps)}  # not rounded yet, as on the pages
    for phase in (phase for phase in rank["phases"] if phase["name"] in known):
        bar = "#" * round(40 * phase["share_frac"])
        label, mean = PHASE_LABELS.get(phase["name"], phase["name"]), format_duration(means_ns[phase["name"]])
        lines.append(f"  {label:<28} {mean:>9}  {shares[phase['name']]:>7}  {bar}".rstrip())
    lines += list_useful_lines(run.rank(rank["rank"]), rows.steps, noun)
    slow = [*_render_stacks(rank["stacks"], shares, noun), *_render_slow_steps(rank)]
    return "\n".join(
        [
            *lines,
            *_render_device(rank, run.rank(rank["rank"])),
            *_render_evaluation(rank, run),
            *slow,
            *_render_pipeline(rank),
        ]
    )


def _render_device(report: dict[str, Any], rank: RankRun) -> list[str]:
    """Return lines on the shares of device time, the longest kernels, waits for the host, and peak device memory."""
    lines: list[str] = []
    times = report["device"]
    if times is not None and times["total_ns"]:
        parts = {doing: times[part] / times["total_ns"] for part, doing in _DOING.items() if times[part]}
        shares = (f"{doing} {format_share(share)}" for doing, share in parts.items())
        lines.append(f"  device    {', '.join(shares)} of the time from its first to its last work")
    kernels = report["kernels"][:_MOST_LINES]
    for kernel, name in zip(kernels, name_kernels([kernel["name"] for kernel in kernels], 60), strict=True):
        calls = format_number_of(kernel["count"], "call")
        lines.append(f"  kernel    {name}: {format_duration(kernel['total_ns'])}, {calls}")
    with Edge(lambda error: None):  # the Device page says why
        path = find_critical_path(rank)
        waits = say_host_waits(path.host_waits) if path is not None else ""
        lines += [f"  {waits}"] if waits else []
    with Edge(lambda error: None):  # the Memory page says why
        for trace in (trace for trace in read_memory(rank) if trace.device >= 0):
            held = trace.peak_reserved_bytes
            peak = f"{format_bytes(trace.peak_bytes)} allocated{f', {format_bytes(held)} reserved' if held is not None else ''}"
            lines.append(f"  memory    at most {peak} on device {trace.device}")
    return lines


_DOING = {
    "computation_ns": "computes",
    "exposed_communication_ns": "only communicates",
    "exposed_copy_ns": "only copies",
    "idle_ns": "is idle",
}


_STAGE_NAMES: Mapping[str, str] = {
    "fetch": "read and transform",
    "threads": "other threads that are waited for",
    "beside": "other threads meanwhile",
}


def _render_stacks(report: Mapping[str, Any] | None, phase_shares: Mapping[str, str], noun: str) -> list[str]:
    """Return a line for each function with a large share of a phase or stage. `phase_shares` has texts by phase."""
    if report is None:
        return []
    lines = []
    for part in report["phases"]:
        label = PHASE_LABELS.get(part["name"], part["name"])
        whole = phase_shares.get(part["name"], "")
        lines += _render_part(f"{label} ({whole} of the {noun})" if whole else label, part)
    for part in report["stages"]:
        lines += _render_part(_STAGE_NAMES.get(part["name"], part["name"]), part)
    return lines


def _render_part(label: str, part: Mapping[str, Any]) -> list[str]:
    found = [NamedFunction(**entry) for entry in part["functions"]]
    return [
        f"  in {label}: {spell_function(entry)}, {spell_share(entry)}"
        for entry in found[:_MOST_LINES]
        if entry.share_frac >= _LEAST_FRAC
    ]


def _render_attempts(run: Run, verdict: str) -> str:
    """Return text on which attempt of its job the run is, the commands that report failed attempts of the same job, and
    the useful time of the job.

    The text on the attempt is left out if `verdict` contains it. Empty for a job with one attempt.
    """
    lines = list_attempt_lines(run)
    said = say_attempts(lines)
    useful = say_job_time(find_job_time(run))
    return "\n".join(filter(None, ("" if said in verdict else said, *spell_reports(lines), useful)))


def _render_comparison(run: Run) -> str:
    lines: list[str] = []
    with Edge(lambda error: lines.append(f"The ranks cannot be compared: {type(error).__name__}: {error}"[:200])):
        ranks = summarize_ranks(run)
        if len(ranks) > 1:
            lines += describe_ranks(ranks, summarize_collectives(ranks), judge_run(run, ranks), find_slow_call(ranks))
            lines += [unread] if (unread := describe_unread(len(run.ranks))) else []
    return "\n".join(["Ranks", *(f"  {line}" for line in lines)]) if lines else ""


def _render_evaluation(rank: dict[str, Any], run: Run) -> list[str]:
    rows = read_step_rows(run.rank(rank["rank"]))
    found = None if rows.infers else summarize_evaluation(rows.every)
    if found is None:
        return []
    text = f"{format_number_of(found.count, 'batch')}, {format_duration(found.total_ns)} in all"
    return [f"  evaluation: {text} ({format_share(found.share_frac)} of the recorded time)"]


def _render_requests(rank: RankRun, noun: str) -> list[str]:
    lines: list[str] = []
    with Edge(lambda error: None):  # a warning of the report says why
        found, others = summarize_requests(rank), summarize_other_calls(rank)
        if found is not None:
            lines.append(f"  request   {say_latency(found)}; {describe_requests(found)}")
        if others is not None and others.duration_ns is not None:
            median = format_duration(others.duration_ns.p50)
            lines.append(
                f"  {format_number_of(others.count, 'call')} on other threads, median {median}, in no {noun} here"
            )
    return lines


def _render_slow_steps(rank: dict[str, Any]) -> list[str]:
    lines = []
    for entry in rank["interruptions"][:_MOST_HELD]:
        name = Held(entry["kind"], entry["name"]).label
        longest = f", {format_duration(entry['longest_ns'])} the longest" if entry["count"] > 1 else ""
        times = format_number_of(entry["count"], "time")
        share = "" if entry["share_frac"] is None else f" ({format_share(entry['share_frac'])} of the recorded time)"
        lines.append(f"  held up by {name}: {times}, {format_duration(entry['total_ns'])} in all{share}{longest}")
    slow = rank["outliers"][:_MOST_SLOW]
    return lines + [f"  slow {rank['unit']} {e['step']}: {e['ratio']:.1f}× the median; {e['text']}" for e in slow]


def _explain_no_steps(rank: dict[str, Any], run: Run) -> str:
    is_broken = run.rank(rank["rank"]).status("steps").state == "broken"
    return "its steps cannot be read." if is_broken else "no steps were recorded."


def _render_pipeline(rank: dict[str, Any]) -> list[str]:
    lines = [
        f"  {queue['name'].replace('_', ' ')}: {queue['mean_depth']:.1f} of {queue['capacity']} on average "
        f"({format_share(queue['usage_frac'])}), empty in {format_share(queue['empty_frac'])} of the requests"
        for queue in rank["queues"]
    ]
    feeding = [entry for entry in rank["loaders"] if entry["feeds_steps"]]
    of = {entry["loader"]: f" of loader {entry['loader']} ({entry['dataset']})" for entry in feeding}
    if len(feeding) < 2:
        of = {}
    else:
        fed = f"feed the {form_plural(rank['unit'])}, which wait longest for loader {feeding[0]['loader']}"
        lines.append(f"  {len(feeding)} loaders {fed}")
    inline = {entry["loader"] for entry in rank["loaders"] if not entry["num_workers"]}
    lines += [
        f"  stage {stage['name']}{of.get(stage['loader'], '')}: {format_duration(stage['mean_ns'])} per batch, "
        f"{_say_busy(stage, stage['loader'] in inline, rank['unit'])}"
        for stage in rank["stages"]
    ]
    return lines


def _say_busy(stage: dict[str, Any], is_inline: bool, noun: str) -> str:
    share = format_share(stage["busy_frac"])
    if is_inline:
        return f"{share} of the {noun}, in the main process"
    return f"busy {share} of {format_number_of(stage['replicas'], 'replica')}"


def _render_times(times: dict[str, int | None], noun: str) -> str:
    if times["count"] == 1:
        return f"length of the only {noun} {format_duration(times['mean'])}"
    percentiles = {label: times[name] for label, name in zip(PERCENTILE_LABELS, PERCENTILES, strict=True)}
    figures = {"min": times["min"], "max": times["max"], "mean": times["mean"], "median": times["p50"], **percentiles}
    del figures["p50"]
    return f"count {times['count']:,}, " + ", ".join(
        f"{name} {format_duration(value)}" for name, value in figures.items() if value is not None
    )


def _render_suggestions(report: dict[str, Any], run: Run, rank: int | None) -> str:
    if not report["suggestions"]:
        return f"Suggestions: none. {explain_silence(run, rank)}"
    asked = [entry for entry in report["suggestions"] if entry["severity"] != "info"]
    looks = [e for e in report["suggestions"] if e["least_step_ns"] is not None and not e["condition"]]
    noted = [entry for entry in report["suggestions"] if entry["severity"] == "info" and entry not in looks]
    tried = {rule: trial["sentence"] for rule, trial in report["tried"].items()}
    lines = ["Suggestions"] if asked else [f"Suggestions: none. {NOTHING_PAYS}"]
    for number, entry in enumerate(asked, start=1):
        lines += [f"  {number}. {entry['title']}  [{entry['severity']}, {entry['rule']}]", *_render_entry(entry, tried)]
    for title, entries in (("Worth a look", looks), ("To know", noted)):
        lines += [f"\n{title}"] if entries else []
        for entry in entries:
            lines += [f"  {entry['title']}  [{entry['severity']}, {entry['rule']}]", *_render_entry(entry, tried)]
    return "\n".join(lines)


def _render_entry(entry: dict[str, Any], tried: Mapping[str, str]) -> list[str]:
    has_gain = entry["severity"] != "info" or entry["predicted_step_ns"] is not None
    return [
        *([f"     {say_gain(entry)}"] if has_gain else []),
        *([f"     {tried[entry['rule']]}"] if entry["rule"] in tried else []),
        f"     Measured: {entry['measured']}",
        f"     Threshold: {entry['threshold']}",
        f"     {entry['advice']}",
        *(f"     | {line}" for line in entry["change"].splitlines()),
    ]
