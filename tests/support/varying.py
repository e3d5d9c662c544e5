"""What is told of facts, and which words change if one of them is unknown, nothing, half or twice as much."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache, partial
from itertools import chain, product
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa

from collector.estimating.model import Job, LoopModel
from profiler_server.diagnosis.deriving import derive
from profiler_server.diagnosis.judging import find_rules
from profiler_server.facts.case import Abstention, Case, Finding, Rule
from profiler_server.facts.steps import read_column
from tests.support.forced_limits import SIDES, find_compared, force_limits

_FIGURE = re.compile(r"\d[\d.,]*(?: (?:%|ns|µs|ms|s|[KMGT]?i?B)\b)?")


def write_variants(given: Any, tell: Callable[[Any], tuple[str, ...]]) -> str:
    """Return what is told of facts, and each change of a fact or a limit by which something else is told."""
    usual = tell(given)
    variants = ((name, partial(tell, changed)) for name, changed in list_variants(given))
    return _write(
        usual, _note(usual, chain(variants, _list_forced(partial(tell, given), find_compared(partial(tell, given)))))
    )


class Forcing:
    """Forces limits in many cases, each of them in the first `most` cases in which it is compared."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tried: Counter[str] = Counter()

    def write(self, tell: Callable[[], tuple[str, ...]]) -> str:
        """Return what is told, and what else is told with a figure below, at or above a limit."""
        usual = tell()
        compared = [name for name in find_compared(tell) if self._tried[name] < self._most]
        self._tried.update(compared)
        return _write(usual, _note(usual, _list_forced(tell, compared)))


def _note(
    usual: tuple[str, ...], variants: Iterable[tuple[str, Callable[[], tuple[str, ...]]]]
) -> Mapping[str, Sequence[str]]:
    """Return by difference the names of the variants of which something else is told."""
    noted: dict[str, list[str]] = {}
    for name, tell in variants:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            try:
                found = tell()
            except (ArithmeticError, LookupError, ValueError):  # no rank has such facts
                continue
        if found != usual:
            noted.setdefault(_tell_difference(usual, found), []).append(name)
    return noted


def _write(usual: tuple[str, ...], noted: Mapping[str, Sequence[str]]) -> str:
    lines = [f"  {', '.join(names)}:\n    {found}\n" for found, names in noted.items()]
    return "\n".join(usual) + "\n\n" + "".join(lines)


def _list_forced(
    tell: Callable[[], tuple[str, ...]], limits: Sequence[str]
) -> Iterator[tuple[str, Callable[[], tuple[str, ...]]]]:
    """Yield for each limit what is told if every figure that is compared with it lies below, at and above it."""
    for name, side in product(limits, SIDES):
        yield f"{side} {name}", partial(_tell_forced, tell, name, side)


def _tell_forced(tell: Callable[[], tuple[str, ...]], name: str, side: str) -> tuple[str, ...]:
    with force_limits((name,), SIDES[side]):
        return tell()


def write_findings(case: Case, name: str) -> str:
    """Return what a rule finds in a case and in its variants."""
    rule = next(entry for entry in find_rules().rules if entry.id == name)
    return write_variants(derive(case), lambda changed: write_finding(changed, rule))


def _tell_difference(usual: tuple[str, ...], found: tuple[str, ...]) -> str:
    if len(found) != len(usual):
        gone = (f"without {' '.join(line.split()[:3])}" for line in usual if line not in found)
        return f"{len(found)} lines for {len(usual)}; " + "; ".join(
            [*gone, *(line for line in found if line not in usual)]
        )
    changed = ((before, after) for before, after in zip(usual, found, strict=True) if after != before)
    return "; ".join(_tell_words(before.split(), after.split()) for before, after in changed)


def _tell_words(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the words that differ, with what stood there before where that is short."""
    parts = []
    for kind, begin, end, new, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            old = " ".join(before[begin:end] if end - begin <= 3 else (before[begin], "…", before[end - 1]))
            parts.append(f"{old or '-'} → {' '.join(after[new:new_end]) or '-'}")
    return ", ".join(parts)


def write_finding(case: Case, rule: Rule) -> tuple[str, ...]:
    """Return all parts of a result but its words, of which the figures are kept."""
    found = rule.judge(case)
    if isinstance(found, tuple):
        return tuple(part for each in found for part in _write_parts(case, each)) or ("silent",)
    return _write_parts(case, found)


def _write_parts(case: Case, found: Finding | Abstention | None) -> tuple[str, ...]:
    if not isinstance(found, Finding):
        return ("silent",) if found is None else (f"lacks {found.missing}",)
    text, what_if = found.text, found.what_if
    parts = [
        f"says {' '.join(_FIGURE.findall(f'{text.title} {text.measured} {text.advice} {text.change} {text.fix}'))}",
        f"{found.severity}, at least {found.least_frac:.3g}, {_write_doubt(found.doubt_frac)}",
        f"shown on {' '.join(seen.page + seen.query for seen in found.evidence)}",
        f"sets {dict(found.settings)}, saves {found.saved_per_step_frac:.3g} between steps",
        f"otherwise {found.otherwise.severity}" if found.otherwise is not None else "otherwise nothing",
    ]
    if what_if is None:
        return (*parts, "no step time")
    touches = ", ".join(f"{part} {_round(time_ns)}" for part, time_ns in what_if.touches.items())
    model = case.loading.loop.model
    full = "" if what_if.full is None else f", in full {_write_model(what_if.full, model)}"
    return (
        *parts,
        f"touches {touches}{' feeds' * what_if.feeds}{' eases' * what_if.eases}{' of job' * what_if.is_of_job}",
        f"leaves {_write_model(what_if.change, model)}{full}",
    )


def _write_doubt(doubt_frac: float | None) -> str:
    return "no step time" if doubt_frac is None else f"in doubt by {doubt_frac:.3g}"


def _write_model(change: Callable[[LoopModel], LoopModel], model: LoopModel) -> str:
    try:
        model = change(model)
    except ValueError:  # batches by hand, of which there are fewer than in the model
        return "no such model"
    steps, batches = (sum(job.wall_ns for job in jobs) / max(len(jobs), 1) for jobs in (model.steps, model.batches))
    order = "" if model.in_order else " in any order"
    return (
        f"steps {_round(steps)} batches {_round(batches)} receive {_round(model.receive.idle_ns)} "
        f"extra {_round(model.extra_ns)}, {model.workers} × {model.prefetch}{order}"
    )


def _round(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3g}"


def list_variants(value: Any, path: str = "", is_optional: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the value with one fact changed, for each of its facts, with the name of the change."""
    if is_optional and value is not None:
        yield f"{path} unknown", None
    if isinstance(value, bool):
        yield f"{path} {not value}", not value
    elif isinstance(value, int | float) and value:
        yield f"{path} 0", type(value)(0)
        yield f"{path} ÷2", type(value)(value / 2)
        yield f"{path} ×2", value * 2
    elif isinstance(value, str) and value:
        yield f"{path} other", "?"
    elif isinstance(value, np.ndarray) and value.any():
        yield f"{path} 0", np.zeros_like(value)
        if value.dtype != np.bool_:
            yield f"{path} ×2", value * 2
    elif isinstance(value, pa.Table):
        for name in value.column_names:
            at = value.schema.get_field_index(name)
            if pa.types.is_integer(value.schema.field(at).type) and name != "start_ns":
                zeros = pa.array(np.zeros(value.num_rows, np.int64), value.schema.field(at).type)
                yield f"{path}.{name} 0", value.set_column(at, value.schema.field(at), zeros)
    elif isinstance(value, tuple) and value:
        yield f"{path} ()", ()
        if len(value) < 8:
            for name, changed in list_variants(value[0], f"{path}[0]"):
                yield name, (changed, *value[1:])
    elif isinstance(value, Mapping) and type(value).__name__ in ("dict", "mappingproxy"):
        for key in value:
            yield f"{path}.{key} absent", {name: kept for name, kept in value.items() if name != key}
            for name, changed in list_variants(value[key], f"{path}.{key}"):
                yield name, {**value, key: changed}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type | LoopModel):
        hints = _find_hints(type(value))
        for field in dataclasses.fields(value):
            entries = list_variants(getattr(value, field.name), f"{path}.{field.name}".lstrip("."), hints[field.name])
            for name, changed in entries:
                yield name, dataclasses.replace(value, **{field.name: changed})


@cache
def _find_hints(kind: type) -> Mapping[str, bool]:
    """Return for each field of a class whether it may be None."""
    return {name: NoneType in get_args(hint) for name, hint in get_type_hints(kind).items()}


def write_facts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of each fact, and what it is; of many numbers their count and their mean."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from write_facts(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))
    elif isinstance(value, pa.Table):
        for name in value.column_names:
            if pa.types.is_integer(value.schema.field(name).type):
                yield from write_facts(read_column(value, name), f"{path}.{name}")
    elif isinstance(value, Mapping) and type(value).__name__ in ("dict", "mappingproxy"):
        for key, entry in value.items():
            yield from write_facts(entry, f"{path}.{key}")
    elif isinstance(value, tuple) and value and isinstance(value[0], Job):
        yield from write_facts(np.array([job.wall_ns for job in value]), f"{path}.wall_ns")
        yield from write_facts(np.array([job.cores for job in value]), f"{path}.cores")
    elif isinstance(value, tuple) and value and not isinstance(value[0], str | float | int):
        for at, entry in enumerate(value):
            yield from write_facts(entry, f"{path}[{at}]")
    elif isinstance(value, np.ndarray):
        yield path, f"{len(value)} of {value.mean():.4g}" if len(value) else "none"
    elif isinstance(value, float):
        yield path, f"{value:.4g}"
    elif isinstance(value, str | int | tuple | NoneType):
        yield path, str(value)
