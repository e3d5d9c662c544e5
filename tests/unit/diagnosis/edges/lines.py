"""Thresholds of the lines that are worth a look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from profiler_server.analysis.accounting.explained import explain_phases
from profiler_server.facts.case import Case, Hotspot, Line, LineCourse, LineOperator, Lines, LineWork
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, base, whole


def spot(share: float = 0.4, doing: str = "", **fields: Any) -> Hotspot:
    """Return a function of the user's with this share of the step, in the forward."""
    values: dict[str, Any] = {
        "function": "mine",
        "file": "/home/me/train.py",
        "lines": (Line(41, share, "x = mine(x)"),),
        "samples": 80,
        "share_frac": share,
        "low_frac": share,
        "high_frac": share,
        "phases": {"forward": share},
        "calls": {"torch.tanh": share},
        "inside": {"torch.tanh": share},
        "doing": doing,
    }
    return Hotspot(**{**values, **fields})


def work(calls: float = 1.0, mean_ns: float = 1e6, operator_frac: float = 0.9, backward_frac: float = 0.5) -> LineWork:
    return LineWork((LineOperator("aten::tanh", calls, mean_ns),), calls, mean_ns, operator_frac, backward_frac)


def course(
    times_ns: tuple[float, float, float] = (1e6, 2e6, 3e6),
    error_ns: float = 1e5,
    first_ns: float = 7e6,
    last_ns: float = 7e6,
    **fields: Any,
) -> LineCourse:
    """Return a line that grows beside a rest of 7 ms that does not."""
    return LineCourse(times_ns, error_ns, (40, 280), (first_ns, last_ns), **fields)


def grows(*args: Any, **fields: Any) -> bool:
    (title,) = titles(spot(course=course(*args, **fields)))
    return "longer with every" in title


def alone(
    threads: float = 1.0, mean_ns: float = 1e6, free: float = 1.0, used: float = 1.0, torch_threads: int | None = 4
) -> bool:
    """Say whether a line with operators that long, beside so many free processors of four, is told to run alone."""
    case = make.with_load(base(), process=used, workers=0.0, others=4.0 - used - free)
    case = make.with_manifest(replace(case, host=replace(case.host, cores=4.0)), torch_threads=torch_threads)
    found = spot(
        work=work(mean_ns=mean_ns), backward_frac=0.1, course=course(error_ns=1e9, asleep_frac=0.0, threads=threads)
    )
    return "on one thread" in titles(found, case=case)[0]


def with_lines(*spots: Hotspot, samples: int = 1000, case: Case | None = None) -> Case:
    return replace(case or base(), lines=Lines(samples, spots, 0.0, 0.0, 0.0))


def titles(*spots: Hotspot, **fields: Any) -> tuple[str, ...]:
    """Return the titles of the lines that are worth a look."""
    return tuple(found.text.title for found in make.find(with_lines(*spots, **fields), "hot_line"))


def _is_looped(**fields: float) -> bool:
    return any("times in each" in title for title in titles(spot(work=work(**fields))))


def _is_partial(times: float = 1e3, calls: float = 30) -> bool:
    found = LineWork((LineOperator("aten::select", calls, 1e4, times * 1e4, 0.5),), calls, 1e4, 0.9, 0.5)
    return any("parts of a tensor" in title for title in titles(spot(work=found, backward_frac=0.3)))


def _again(share: float) -> Hotspot:
    return spot(function="Net.forward", phases={"forward": 0.4 * (1 - share), "backward": 0.4 * share})


def _is_made(share: float) -> bool:
    return any("anew" in title for title in titles(spot(made_frac=0.4 * share)))


def _explains(share: float) -> bool:
    """Say whether a forward with this share of the step is accounted for."""
    case = make.with_share(base(), "forward", share)
    accounts = explain_phases(case.steps, (case.loading,), with_lines(spot(phases={"forward": share})).lines)
    return any(account.phase == "forward" for account in accounts)


EDGES: Mapping[str, Edge] = {
    "EXPLAINED_FRAC": Edge(0.05, _explains),
    "HOT_FRAC": Edge(0.10, lambda x: bool(titles(spot(x)))),
    "PATTERN_FRAC": Edge(0.05, lambda x: bool(titles(spot(x, made_frac=x)))),
    "LEAST_LINE_SAMPLES": Edge(30, lambda x: bool(titles(spot(), samples=whole(x)))),
    "BUSY_FRAC": Edge(0.7, lambda x: not titles(spot(), case=make.with_device(base(), busy=x))),
    "MOSTLY_FRAC": Edge(0.5, _is_made),
    "MANY_CALLS": Edge(24, lambda x: _is_looped(calls=whole(x), mean_ns=1e3)),
    "SMALL_NS": Edge(60_000.0, lambda x: not _is_looped(calls=100, mean_ns=x)),
    "FILLED_TIMES": Edge(10.0, _is_partial),
    "PART_CALLS": Edge(8, lambda x: _is_partial(calls=whole(x))),
    "AGAIN_FRAC": Edge(0.2, lambda x: "again" in titles(_again(x))[0]),
    "NO_GRADIENT_FRAC": Edge(0.05, lambda x: "same" not in titles(spot(work=work(), backward_frac=0.4 * x))[0]),
    "GROWTH_FRAC": Edge(0.05, lambda x: grows((1e4, 2.5e5, 1e4 + x * 1e7), first_ns=1e6, last_ns=1e7 * (1 - x) - 1e4)),
    "STEADY_GROWTH_FRAC": Edge(0.2, lambda x: grows((1e6, 3e6 - x * 2e6, 3e6))),
    "GROWTH_TIMES": Edge(1.5, lambda x: grows((2e6, 2.5e6, 2e6 * x))),
    "SURE_ERRORS": Edge(3.0, lambda x: grows(error_ns=2e6 / x)),
    "ALONE_THREADS": Edge(1.25, lambda x: not alone(threads=x)),
    "LARGE_NS": Edge(200_000.0, lambda x: alone(mean_ns=x)),
    "SAMPLED_TIMES": Edge(1.15, lambda x: not alone(used=x)),
    "FREE_CORES": Edge(0.75, lambda x: alone(free=x)),
    "PYTHON_FRAC": Edge(0.25, lambda x: "Python" not in titles(spot(work=work(operator_frac=x)))[0]),
}
