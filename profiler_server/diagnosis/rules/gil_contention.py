"""Other Python threads of the training process compute, and the training thread waits for the interpreter meanwhile."""

from __future__ import annotations

from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import PYTHON_CORES
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_share

_MOST_NAMES = 3


def _judge(case: Case) -> Finding | None:
    used = case.host.load.python_threads if case.host.load is not None else None
    if used is None or used < PYTHON_CORES:
        return None
    share = min(used, 1.0)
    names = _list_names(case)
    return Finding(
        title="Other Python threads compute beside the training thread",
        measured=f"Python threads of the training process{names} were on a processor for {format_share(used)} of one core. "
        "Only one thread of a process runs Python at a time.",
        threshold=f"At least {format_share(PYTHON_CORES)} of one core.",
        advice="The training thread asks for the interpreter after each operator, and a thread that computes in Python keeps "
        "it for up to 5 ms. Move that work into a process, such as a DataLoader worker, or into code that lets the "
        "interpreter go, such as NumPy.",
        change="with concurrent.futures.ProcessPoolExecutor() as pool:  # instead of a thread\n    pool.submit(work, item)",
        fix="other Python work in a process of its own",
        evidence=(STEPS_PAGE,),
        assumption="those threads held the interpreter half of that time",
        what_if=shorten_step(case, "interpreter", share * case.steps.mean_ns, 0.5),
        gain_range=(0.3, 1.8),
    )


def _list_names(case: Case) -> str:
    noted = case.facts.get("python_threads")
    entries = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, list) else []
    names = list(dict.fromkeys(str(entry.get("name", ""))[:60] for entry in entries))[:_MOST_NAMES]
    return f" ({', '.join(names)})" if names else ""


RULE = Rule("gil_contention", knob="interpreter", effort="code", judge=_judge)
