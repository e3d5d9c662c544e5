"""Other Python threads of the training process compute, and the training thread waits for the interpreter meanwhile."""

from __future__ import annotations

from profiler_server.diagnosis.limits import PYTHON_CORES
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_share

_MOST_NAMES = 3


def _judge(case: Case) -> Finding | Abstention | None:
    load = case.host.load
    used = load.python_threads if load is not None else None
    if load is None or used is None or used < PYTHON_CORES or case.device.is_used:
        return None  # on a device the training thread also waits for that
    if load.main_thread is None:
        return Abstention("gil_contention", "how long the training thread was on a processor", "Record on Linux.")
    known = load.main_thread + (load.queued_frac or 0.0) + case.steps.share("data_wait", "communication")
    blocked = min(1.0 - known, used, 1.0)
    if blocked < PYTHON_CORES:
        return None  # the training thread ran all the while: the others let the interpreter go
    return Finding(
        title="The training thread waits for other Python threads",
        measured=f"Other Python threads of the process{_list_names(case)} were on a processor for {format_share(used)} of one "
        f"core, and the training thread stood still for {format_share(1.0 - known)} of the time, waiting for neither data nor "
        "a processor. Only one thread of a process runs Python at a time.",
        threshold=f"Both at least {format_share(PYTHON_CORES)}, on a host without a device.",
        advice="The training thread asks for the interpreter after each operator, and a thread that computes in Python keeps "
        "it for up to 5 ms. Move that work into a process, such as a DataLoader worker, or into code that lets the "
        "interpreter go, such as NumPy.",
        change="with concurrent.futures.ProcessPoolExecutor() as pool:  # instead of a thread\n    pool.submit(work, item)",
        fix="other Python work in a process of its own",
        evidence=(STEPS_PAGE,),
        assumption="it stood still for the interpreter",
        what_if=shorten_step(case, "interpreter", blocked * case.steps.mean_ns, 0.8),
        gain_range=(0.4, 1.2),
    )


def _list_names(case: Case) -> str:
    noted = case.facts.get("python_threads")
    entries = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, list) else []
    names = list(dict.fromkeys(str(entry.get("name", ""))[:60] for entry in entries))[:_MOST_NAMES]
    return f" ({', '.join(names)})" if names else ""


RULE = Rule("gil_contention", knob="interpreter", effort="code", judge=_judge)
