"""Lines of the user's code in which much of the step is spent, whatever they do. No rule has to know these lines
beforehand.

A pattern is a kind of work, such as many small operators. It is found by measurements of the line, never by the program
around the line. A line that fits no pattern is worth a look for its share alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from collector.format.phases import OUTSIDE, PHASE_LABELS
from profiler_server.diagnosis.limits import lines as limits
from profiler_server.diagnosis.limits.facts import NOISY_FRAC, SURE_ERRORS
from profiler_server.diagnosis.limits.host import PYTHON_CORES
from profiler_server.facts.case import THREADS, WORKERS, Case, Finding, Hotspot, LineOperator, Rule
from profiler_server.format import format_duration, format_sampled
from profiler_server.words.phrases import FUNCTIONS, describe

_SERIAL = re.compile(
    r"torch\.(save|_?serialization).*|(pickle|json|csv|shutil|zipfile|gzip|logging|loguru|sklearn|scipy|pandas|matplotlib"
    r"|seaborn|wandb|mlflow|tensorboard\w*|tqdm|imageio|PIL\.Image\.Image\.save)\b.*"
)
_CONVERTED = re.compile(
    r"\.tolist\(|\.numpy\(|\.item\(|\.cpu\(|torch\.(tensor|as_tensor|from_numpy)\(|np\.(array|asarray)\("
)
_CONVERTING = frozenset(("aten::_local_scalar_dense", "aten::item", "aten::lift_fresh", "aten::_to_copy", "aten::to"))
_TAKING_PARTS = re.compile(
    r"aten::(select|slice|narrow|index|index_select|gather|take|unfold|diagonal|embedding|embedding_bag)"
)


def _judge_hot_lines(case: Case) -> tuple[Finding, ...]:
    """The user's functions and lines with a large share of the step, and the step without them."""
    if case.lines is None or case.lines.samples < limits.LEAST_LINE_SAMPLES or _is_busy(case):
        return ()
    found = [(spot, _name_pattern(case, spot)) for spot in case.lines.hotspots]
    # A line that sleeps while threads work is no place of work: theirs are named.
    threads = max((spot.phases.get(THREADS, 0.0) for spot in case.lines.hotspots), default=0.0)
    found = [entry for entry in found if not _sleeps(entry[0]) or entry[0].share_frac >= threads]
    hot = [(spot, pattern) for spot, pattern in found if _is_hot(spot, pattern)]
    hot.sort(key=lambda entry: -entry[0].whole_frac * limits.weigh_line(entry[0].function, bool(entry[1])))
    return tuple(_describe(case, spot, pattern) for spot, pattern in hot[: limits.MOST_HOT])


def _is_busy(case: Case) -> bool:
    """Return whether a device is busy most of the time. The recorded thread then stands at lines that wait for the
    device."""
    summary = case.device.summary
    busy_frac = summary.utilization_frac if summary is not None else None
    return case.device.is_used and (busy_frac or 0.0) >= limits.BUSY_FRAC


def _is_hot(spot: Hotspot, pattern: str) -> bool:
    """Return whether a line is worth a look.

    Backward, update and the loader's loop are lines of every training. Such a line is worth a look only with a pattern.
    """
    least = limits.PATTERN_FRAC if pattern else limits.HOT_FRAC
    return (bool(pattern) or not spot.doing) and spot.low_frac + spot.backward_frac >= least


def _name_pattern(case: Case, spot: Hotspot) -> str:
    if spot.doing:  # this line belongs to every training: only its Python part may be needless
        return "made_again" if spot.doing == "loader" and _is_made_again(spot) else ""
    if _grows(case, spot):
        return "grows"
    if _is_in_threads(spot):
        return "threads"
    if _waits(case, spot):
        return "waiting"
    found = next((name for name, fits in PATTERNS.items() if fits(spot)), "")
    return found or ("one_thread" if _is_divisible(case, spot) else "")


def _is_divisible(case: Case, spot: Hotspot) -> bool:
    """Return whether a line runs on one thread while processors are free and PyTorch may use several threads. With one
    thread for all of PyTorch, that setting is the cause, and not the line."""
    return (case.manifest.torch_threads or 1) > 1 and _runs_alone(spot) and _count_free(case) >= limits.FREE_CORES


def _is_in_threads(spot: Hotspot) -> bool:
    """Return whether other threads of the process run a line while the recorded thread waits for them."""
    return spot.phases.get(THREADS, 0.0) >= limits.MOSTLY_FRAC * spot.share_frac


def _sleeps(spot: Hotspot) -> bool:
    return spot.course is not None and (spot.course.asleep_frac or 0.0) >= limits.MOSTLY_FRAC


def _waits(case: Case, spot: Hotspot) -> bool:
    """Return whether the recorded thread sleeps in a line, while neither a device nor another thread works."""
    course = spot.course
    if course is None or not _sleeps(spot) or case.device.is_used:
        return False
    running = (course.threads or 0.0) - (1.0 - (course.asleep_frac or 0.0))
    others = case.host.load.python_threads if case.host.load is not None else None
    return max(running, others or 0.0) < PYTHON_CORES


def _runs_alone(spot: Hotspot) -> bool:
    """Return whether a line spends its time in large operators while only one thread of the process runs."""
    work, threads = spot.work, spot.course.threads if spot.course is not None else None
    if work is None or threads is None or threads > limits.ALONE_THREADS:
        return False
    whole_ns = sum(entry.calls * entry.mean_ns for entry in work.operators)
    large_ns = sum(entry.calls * entry.mean_ns for entry in work.operators if entry.mean_ns >= limits.LARGE_NS)
    return work.operator_frac >= limits.MOSTLY_FRAC and large_ns >= limits.MOSTLY_FRAC * whole_ns > 0


def _average_threads(case: Case) -> float:
    """Return the mean number of running threads over all samples, 0 if unknown. The number is too low if the sampler
    got a processor only when the threads did not run."""
    seen = [(spot.share_frac, spot.course.threads) for spot in case.lines.hotspots if spot.course] if case.lines else []
    known = [(share, threads) for share, threads in seen if threads is not None]
    return sum(share * threads for share, threads in known) / sum(share for share, _ in known) if known else 0.0


def _count_free(case: Case) -> float:
    """Return how many of the usable processors are idle; 0 if unknown, or if the steps compute on a device."""
    load = case.host.load
    if (
        load is None
        or load.process is None
        or case.device.entries
        or load.process > limits.SAMPLED_TIMES * _average_threads(case)
    ):
        return 0.0
    return max(case.host.cores - load.process - load.workers - load.others, 0.0)


def _is_made_again(spot: Hotspot) -> bool:
    return spot.made_frac >= limits.MOSTLY_FRAC * spot.share_frac


def _grows(case: Case, spot: Hotspot) -> bool:
    """Return whether a line, and the step with it, takes longer from third to third of the run, by more than chance.

    On a busy host, the line must also grow by more than the rest of the step.
    """
    course = spot.course
    if course is None:
        return False
    first_ns, middle_ns, last_ns = course.times_ns
    is_busy = case.host.got_busier or case.host.others_frac >= NOISY_FRAC
    rest_times = course.rest_ns[1] / max(course.rest_ns[0], 1.0) if is_busy else 1.0
    step_growth_ns = course.growth_ns + course.rest_ns[1] - course.rest_ns[0]
    return (
        min(middle_ns - first_ns, last_ns - middle_ns) >= limits.STEADY_GROWTH_FRAC * course.growth_ns
        and step_growth_ns >= limits.MOSTLY_FRAC * course.growth_ns  # otherwise it only replaced another line
        and course.growth_ns >= limits.GROWTH_FRAC * (last_ns + course.rest_ns[1])
        and course.growth_ns >= SURE_ERRORS * course.error_ns
        and last_ns >= limits.GROWTH_TIMES * max(rest_times, 1.0) * first_ns
    )


def _is_looped(spot: Hotspot) -> bool:
    most = _find_most_called(spot)
    return most is not None and most.calls >= limits.MANY_CALLS and most.mean_ns <= limits.SMALL_NS


def _is_serial(spot: Hotspot) -> bool:
    outside = sum(spot.phases.get(phase, 0.0) for phase in OUTSIDE)
    named = sum(share for label, share in spot.calls.items() if _SERIAL.fullmatch(label))
    return max(named, 0.0) >= limits.MOSTLY_FRAC * spot.share_frac and outside >= limits.MOSTLY_FRAC * spot.share_frac


def _is_converted(spot: Hotspot) -> bool:
    work = spot.work
    time_ns = sum(entry.calls * entry.mean_ns for entry in work.operators) if work is not None else 0.0
    moved_ns = (
        sum(entry.calls * entry.mean_ns for entry in work.operators if entry.name in _CONVERTING) if work else 0.0
    )
    by_text = any(
        _CONVERTED.search(line.text) and line.share_frac >= limits.MOSTLY_FRAC * spot.share_frac for line in spot.lines
    )
    return by_text or (time_ns > 0 and moved_ns >= limits.MOSTLY_FRAC * time_ns)


def _find_partial(spot: Hotspot) -> tuple[LineOperator | None, float]:
    """Return the longest operator of a line if it takes parts of tensors but its backward fills whole ones, and the
    share of the step of this backward; else None and 0."""
    work = spot.work
    if work is None or not work.operators or not _TAKING_PARTS.fullmatch(work.operators[0].name):
        return None, 0.0
    most = work.operators[0]
    is_filled = most.calls >= limits.PART_CALLS and most.backward_ns >= limits.FILLED_TIMES * most.mean_ns
    if not is_filled or not work.backward_frac:
        return None, 0.0
    return most, min(most.backward_frac / work.backward_frac, 1.0) * spot.backward_frac


def _is_partial(spot: Hotspot) -> bool:
    return _find_partial(spot)[1] >= limits.PATTERN_FRAC


def _is_recomputed(spot: Hotspot) -> bool:
    """Return whether the forward of a module also runs in the backward: activation checkpointing."""
    return spot.function.endswith(".forward") and spot.rerun_frac >= limits.AGAIN_FRAC * spot.share_frac


def _needs_no_gradient(spot: Hotspot) -> bool:
    """Return whether a line of the forward computes nothing that depends on a parameter. Its result may then be the
    same in each step."""
    forward = spot.phases.get("forward", 0.0)
    work = spot.work
    return (
        work is not None
        and forward >= limits.MOSTLY_FRAC * spot.share_frac
        and work.operator_frac >= limits.MOSTLY_FRAC
        and not _has_gradient(spot)
    )


def _has_gradient(spot: Hotspot) -> bool:
    """Return whether backward computes gradients of a line, after the line or in it."""
    return spot.backward_frac + spot.phases.get("backward", 0.0) >= limits.NO_GRADIENT_FRAC * spot.share_frac


def _is_python(spot: Hotspot) -> bool:
    """Return whether a line computes in Python. False for work in workers, threads or a backward of the user's own, because
    its operators are not known."""
    unknown = sum(spot.phases.get(phase, 0.0) for phase in (WORKERS, THREADS, "backward"))
    work = spot.work
    return (
        work is not None
        and not _sleeps(spot)
        and work.operator_frac <= limits.PYTHON_FRAC
        and unknown < limits.MOSTLY_FRAC * spot.share_frac
    )


PATTERNS: Mapping[str, Callable[[Hotspot], bool]] = {
    "recomputed": _is_recomputed,
    "made_again": _is_made_again,
    "serial": _is_serial,
    "partial": _is_partial,
    "converted": _is_converted,
    "looped": _is_looped,
    "ungraded": _needs_no_gradient,
    "python": _is_python,
}
"""The patterns of a line, the most certain first. The first pattern that fits names the line."""


def _is_of_model(spot: Hotspot) -> bool:
    """Return whether a hotspot is the forward of a module that the training calls, or the line of the loop that does."""
    called = sum(share for label, share in spot.calls.items() if spot.is_of_loop and label.endswith(".forward"))
    is_called = spot.function.endswith(".forward") or called >= limits.MOSTLY_FRAC * spot.share_frac
    return is_called and spot.phases.get("forward", 0.0) >= limits.MOSTLY_FRAC * spot.share_frac


def _quote(spot: Hotspot, text: str, pattern: str) -> str:
    """Return a sentence with the code of the longest line. A line of the loop without a pattern is quoted as the change."""
    if not text or (spot.is_of_loop and not pattern):
        return ""
    return f" {'The line' if spot.is_of_loop else 'Most of it'} is `{text}`."


def _find_most_called(spot: Hotspot) -> LineOperator | None:
    return max(spot.work.operators, key=lambda entry: entry.calls, default=None) if spot.work is not None else None


def _describe(case: Case, spot: Hotspot, pattern: str) -> Finding:
    saved_frac, free = spot.whole_frac, _count_free(case)
    if pattern == "one_thread":  # the time that all processors together would save
        saved_frac *= 1.0 - 1.0 / (1.0 + free)
    partial, partial_frac = _find_partial(spot)
    if pattern == "partial":
        saved_frac = partial_frac
    left_frac = max(1.0 - saved_frac, 0.0)
    left_ns = left_frac * case.steps.mean_ns if round(left_frac, 3) else 0.0
    line, work = spot.lines[0], spot.work
    most = partial if partial is not None and pattern == "partial" else _find_most_called(spot)
    text = describe(
        case,
        f"hot_line.{pattern}" if pattern else "hot_line",
        name=spot.name,
        where="" if spot.is_of_loop else f" at {spot.place}",
        kind="line" if spot.is_of_loop else "function",
        usual=" It is the model's own work." if _is_of_model(spot) else "",
        code=_quote(spot, line.text, pattern),
        source=line.text or "…",
        place=spot.place,
        share=spot.whole_frac,
        sampled=format_sampled(spot.whole_frac, (spot.high_frac - spot.low_frac) / 2),
        backward=" with its backward" if _has_gradient(spot) else "",
        phases=" and ".join(_name_phase(name) for name in sorted(spot.phases, key=lambda name: -spot.phases[name])[:2]),
        left=_say_left(case, pattern, left_ns) if left_ns else "",
        made=next(iter(spot.inside), spot.name),
        called=next(iter(spot.calls), ""),
        operator=most.name if most is not None else "",
        calls=most.calls if most is not None else 0.0,
        each_ns=most.mean_ns if most is not None else 0.0,
        gradient_ns=most.backward_ns if most is not None else 0.0,
        again_ns=spot.rerun_frac * case.steps.mean_ns,
        python_frac=1.0 - work.operator_frac if work is not None else 0.0,
        course=spot.course,
        free=free,
        torch_threads=case.manifest.torch_threads,
    )
    severity: Literal["low", "info"] = "low" if pattern else "info"
    return Finding(text, evidence=(FUNCTIONS,), severity=severity, subject=spot.subject, least_step_ns=left_ns)


_IDEALS = {"partial": "these calls cost nothing", "one_thread": "it ran on these too"}


def _say_left(case: Case, pattern: str, left_ns: float) -> str:
    took = f"would take {format_duration(left_ns)} instead of {format_duration(case.steps.mean_ns)}"
    best = ", at best" if pattern == "one_thread" else ""
    return f" If {_IDEALS.get(pattern, 'it cost nothing')}, the {case.steps.noun} {took}{best}."


def _name_phase(name: str) -> str:
    return {WORKERS: "workers", THREADS: "other threads"}.get(name) or PHASE_LABELS[name].lower()


RULES = (Rule("hot_line", "line", "code", _judge_hot_lines),)
