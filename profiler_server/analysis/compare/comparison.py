"""A comparison of two runs: the parts of the mean step that changed, and whether the changes exceed chance.

The noise of a difference is the half-width of its 95 % interval within these two runs. It does not include the usual
difference between two runs of one program. Consecutive steps are not independent, so each run's noise comes from the
means of up to 20 equal sections of its steps (batch means), not from single steps. Of many tested phases and operators,
some seem to change by chance. So each p-value is corrected for the number of tests (Holm).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats
from collector.format.phases import PHASES, list_phases
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError
from collector.format.schema.wording import form_plural
from collector.format.steps import explain_average, read_integers, select_steps, sum_recorded, train_steps
from profiler_server.analysis.compare.run_statistics import ALPHA, compare_stretches, correct_chances
from profiler_server.analysis.compare.run_times import find_unlike, measure_others, name_load, read_likeness
from profiler_server.analysis.operators.operator_groups import Measure
from profiler_server.analysis.tables import find_rows, is_text
from profiler_server.diagnosis.limits.compare import CAUSE_FRAC, MEDIAN_FRAC, STEPS_RATIO, WHOLE_LOOP_FRAC
from profiler_server.format import format_change, format_duration, format_number_of, format_share

OPERATORS = 15
_ROUNDING = 1e-4
_OPERATOR_COLUMNS = ("step", "name", "phase", "self_ns", "device_self_ns")


@dataclass(frozen=True)
class Difference:
    """The mean time per step of one phase or operator (`name`) in run A and run B. `noise_ns` is the noise of their
    difference, None with too few steps.

    `p` is the probability of a change of this size by chance. `corrected_p` is `p` corrected for the number of tests
    (Holm). Both are None if `noise_ns` is None.
    """

    name: str
    a_ns: float
    b_ns: float
    noise_ns: float | None
    p: float | None = None
    corrected_p: float | None = None

    @property
    def change_ns(self) -> float:
        return self.b_ns - self.a_ns

    @property
    def shown_ns(self) -> float:
        """Return the change to show in ns; 0 if it is below a ten-thousandth of the longer time."""
        return self.change_ns if abs(self.change_ns) > _ROUNDING * max(self.a_ns, self.b_ns) else 0.0

    @property
    def is_clear(self) -> bool:
        return self.corrected_p is not None and self.corrected_p <= ALPHA and self.shown_ns != 0.0

    @property
    def is_unsure(self) -> bool:
        """Return whether the change exceeds its own noise, but may still be chance because many changes were tested."""
        return self.p is not None and self.p <= ALPHA and self.shown_ns != 0.0 and not self.is_clear

    @property
    def meaning(self) -> str:
        """Return the result in the words of pages, reports and commands, such as "slower", "maybe slower", "noise"."""
        if self.p is None:
            return "too few steps"
        word = "slower" if self.change_ns > 0 else "faster"
        return word if self.is_clear else f"maybe {word}" if self.is_unsure else "noise"


@dataclass(frozen=True)
class LineShare:
    """A function, or a line of the training loop, in run A and run B. `part` has its times per step; the noise is that
    of sampling and of the step. `a_place` and `b_place` are file:line of the line with most samples, "" where its share is too small. `text` is that line, "" if its source is unknown.
    """

    part: Difference
    a_place: str
    b_place: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """The comparison of two runs, A and B. `step` compares the mean step, `phases` its phases, which sum to it.

    `operators` are sorted: clear changes, unsure changes, other changes, each by size. The list is cut to 15 of the
    `operators_tested` operators, and is empty if either run has no detailed window. Operators are compared by self
    time: on the device if both runs have device time, else on the host. `measure` names the choice.

    The means and medians cover the steady steps: `a_steps` and `b_steps` of them, which `average` describes. The totals
    cover all training steps, also those of the warm-up and of detailed windows. `a_loop_ns` and `b_loop_ns` are the
    time per step from the first step or evaluation batch to the last, including the time between steps. In runs that
    only do inference, batches or calls replace steps. `noun` is step, batch or call.

    `cautions` are reasons why the runs may not be alike. `moved` names the operators that are not compared, and the
    reason: in one run they run elsewhere, or were not recorded. It is "" if all are compared.
    """

    step: Difference
    phases: tuple[Difference, ...]
    operators: tuple[Difference, ...]
    a_steps: int
    b_steps: int
    a_total_ns: int = 0
    b_total_ns: int = 0
    cautions: tuple[str, ...] = ()
    measure: Measure = "host"
    average: str = ""
    a_loop_ns: float = 0.0
    b_loop_ns: float = 0.0
    noun: str = "step"
    moved: str = ""
    a_median_ns: float = 0.0
    b_median_ns: float = 0.0
    operators_tested: int = 0

    @property
    def whole(self) -> str:
        return "All training steps together" if self.noun == "step" else f"All {form_plural(self.noun)} together"

    @property
    def legend(self) -> str:
        """Return an explanation of a "maybe" change, as the end of a sentence without its subject."""
        phases = sum(bool(part.a_ns or part.b_ns) for part in self.phases)
        tested = format_number_of(phases, "phase")
        if self.operators_tested:
            tested += f" or {format_number_of(self.operators_tested, 'operator')}"
        return (
            f"beyond its noise, but among {tested} chance alone may do that in more than one comparison of twenty (correction by "
            "Holm)"
        )


def compare_ranks(a: RankRun, b: RankRun) -> Comparison:
    """Return the comparison of one rank in two runs. Raises TableMissingError or TableBrokenError if a rank has no
    steps.
    """
    tables = [read_step_rows(rank) for rank in (a, b)]
    whole = [train_steps(table.steps) for table in tables]
    selections = [select_steps(steps) for steps in whole]
    a_steps, b_steps = (steps.filter(pa.array(s.kept)) for steps, s in zip(whole, selections, strict=True))
    nouns = {table.noun for table in tables}
    noun = nouns.pop() if len(nouns) == 1 else "step"
    present = [phase.name for phase in PHASES if any(pc.max(steps[phase.column]).as_py() for steps in whole)]
    columns = [("step", "duration_ns"), *((phase.label, phase.column) for phase in list_phases(noun, present))]
    step, *phases = (_compare(name, _values(a_steps, column), _values(b_steps, column)) for name, column in columns)
    totals = [int(read_integers(steps, "duration_ns").sum()) for steps in whole]
    loops = (_measure_loop(tables[0].every, whole[0].num_rows), _measure_loop(tables[1].every, whole[1].num_rows))
    cautions = _find_cautions(a, b, whole[0].num_rows, whole[1].num_rows) + _find_load((a, a_steps), (b, b_steps))
    measure, every, moved = _compare_operators(a, b)
    operators = tuple(sorted(every, key=lambda d: (not d.is_clear, not d.is_unsure, -abs(d.change_ns)))[:OPERATORS])
    return Comparison(
        step,
        _correct(phases),
        operators,
        a_steps.num_rows,
        b_steps.num_rows,
        totals[0],
        totals[1],
        cautions,
        measure,
        explain_average(selections, noun),
        *loops,
        noun=noun,
        moved=moved,
        a_median_ns=_find_median(a_steps),
        b_median_ns=_find_median(b_steps),
        operators_tested=len(every),
    )


def _find_median(steps: pa.Table) -> float:
    return float(np.median(_values(steps, "duration_ns"))) if steps.num_rows else 0.0


def _measure_loop(steps: pa.Table, count: int) -> float:
    """Return the time in ns from the first step or evaluation batch to the last, divided by the `count` of training
    steps; 0 without a step.
    """
    kinds = steps["kind"].cast(pa.string())
    places = np.flatnonzero(pc.is_in(kinds, pa.array(["train", "eval"])).to_numpy())
    return sum_recorded(steps.slice(places[0], places[-1] - places[0] + 1)) / count if count else 0.0


def _find_cautions(a: RankRun, b: RankRun, a_count: int, b_count: int) -> tuple[str, ...]:
    found = find_unlike([read_likeness(Run(rank.run_path).manifest, rank) for rank in (a, b)])
    few, many = sorted((a_count, b_count))
    if few and many >= STEPS_RATIO * few:
        found.append(f"{'B' if b_count == many else 'A'} has {many / few:,.0f} × as many steps")
    return tuple(found)


def _find_load(a: tuple[RankRun, pa.Table], b: tuple[RankRun, pa.Table]) -> tuple[str, ...]:
    found: list[str] = []
    for name, (rank, steps) in (("A", a), ("B", b)):
        with suppress(RunError):
            found += name_load(name, measure_others(rank, steps), rank.manifest.usable_cores)
    return tuple(found)


def summarize_comparison(found: Comparison) -> str:
    step, noun = found.step, found.noun
    covered = f"over {found.a_steps:,} and {format_number_of(found.b_steps, noun)}"
    if step.noise_ns is None or not step.a_ns:
        return f"Too few steps to compare, {covered}."
    noise, loop = format_duration(step.noise_ns), _describe_median(found) + _describe_loop(found)
    if not step.is_clear:
        change = format_duration(step.change_ns)
        return f"No clear difference, {covered}: the {noun} changed by {change}, noise within the runs ±{noise}.{loop}"
    word = "slower" if step.change_ns > 0 else "faster"
    change = format_duration(abs(step.change_ns))
    share = format_share(abs(step.change_ns) / step.a_ns)
    cause = _name_cause(found)
    return f"B is {word} by {change} per {noun} ({share}){cause}, noise within the runs ±{noise}, {covered}.{loop}"


def _name_cause(found: Comparison) -> str:
    """Return text on the phase that explains most of the step's change, such as `, of it 3 ms forward`.

    The phase must have changed clearly and in the direction of the step. "" if it explains under a quarter of the
    change.
    """
    change_ns = found.step.change_ns
    alike = [phase for phase in found.phases if phase.is_clear and phase.change_ns * change_ns > 0]
    if not alike:
        return ""
    most = max(alike, key=lambda phase: abs(phase.change_ns))
    if abs(most.change_ns) < CAUSE_FRAC * abs(change_ns):
        return ""
    size, name = format_duration(abs(most.change_ns)), most.name.lower()
    return f", {name} alone by {size}" if abs(most.change_ns) > abs(change_ns) else f", of it {size} {name}"


def _describe_median(found: Comparison) -> str:
    """Return a further sentence if the median step changed clearly and in the opposite direction of the mean,
    else "".
    """
    if not found.a_median_ns:
        return ""
    change_frac = found.b_median_ns / found.a_median_ns - 1
    if abs(change_frac) < MEDIAN_FRAC or change_frac * found.step.change_ns >= 0:
        return ""
    return f" The median {found.noun} changed by {format_change(change_frac)}: a few long {form_plural(found.noun)} make up the mean's change."


def _describe_loop(found: Comparison) -> str:
    """Return a further sentence on the change of the whole loop; "" if the loop changed like the step."""
    a_ns, b_ns = found.a_loop_ns, found.b_loop_ns
    if not a_ns or abs((b_ns - a_ns) / a_ns - found.step.change_ns / found.step.a_ns) < WHOLE_LOOP_FRAC:
        return ""
    return (
        f" The whole loop, with evaluation, warm-up and what lies between steps, changed by {format_change(b_ns / a_ns - 1)}: "
        f"{format_duration(a_ns)} a {found.noun} in A, {format_duration(b_ns)} in B."
    )


def _compare(name: str, a: Floats, b: Floats) -> Difference:
    a_ns, b_ns = (float(values.mean()) if len(values) else 0.0 for values in (a, b))
    found = compare_stretches(a, b)
    return Difference(name, a_ns, b_ns, found.noise, found.p, found.p)


def _correct(parts: Sequence[Difference]) -> tuple[Difference, ...]:
    """Return the changes with p-values corrected for the number of tests. Two times of zero do not count as a test."""
    tested = [part for part in parts if part.p is not None and (part.a_ns or part.b_ns)]
    corrected = correct_chances([part.p or 0.0 for part in tested])
    by_name = {part.name: p for part, p in zip(tested, corrected, strict=True)}
    return tuple(replace(part, corrected_p=by_name.get(part.name, part.p)) for part in parts)


def _values(steps: pa.Table, column: str) -> Floats:
    return read_integers(steps, column).astype(np.float64)


def _compare_operators(a: RankRun, b: RankRun) -> tuple[Measure, tuple[Difference, ...], str]:
    rows, moved = _leave_out_moved((a, b), (_read_operators(a), _read_operators(b)))
    on_device = all(pc.any(pc.greater(each["device_self_ns"], 0)).as_py() for each in rows)
    measure: Measure = "device" if on_device else "host"
    a_times, b_times = (_sum_by_step(each, "device_self_ns" if on_device else "self_ns") for each in rows)
    if not a_times or not b_times:
        without = [name for name, each in zip("AB", rows, strict=True) if not each.num_rows]
        who = f"{without[0]} has no" if len(without) == 1 else "neither run has a"
        return measure, (), moved or f"There are none to compare: {who} step that was recorded in detail"
    # Where the other run alone has an operator it took no time.
    a_none, b_none = (np.zeros_like(next(iter(times.values()))) for times in (a_times, b_times))
    names = sorted({*a_times, *b_times})
    found = [_compare(name, a_times.get(name, a_none), b_times.get(name, b_none)) for name in names]
    return measure, _correct(found), moved


def _leave_out_moved(ranks: Sequence[RankRun], rows: Sequence[pa.Table]) -> tuple[list[pa.Table], str]:
    """Return the operators of both runs, and a sentence on the operators that are left out.

    If only one run makes batches in the training process, the operators that make its batches are left out. Operators
    of workers are not recorded, so work that moves to workers would look like a gain, and work that moves back like a
    loss.
    """
    here = [not any(loader.num_workers for loader in rank.manifest.loaders) for rank in ranks]
    if here[0] == here[1]:
        return list(rows), ""
    loading = [is_text(each, "phase", "data_wait") for each in rows]
    one = here.index(True)
    moved = rows[one].filter(loading[one])
    if not moved.num_rows:
        return list(rows), ""
    steps = len(pc.unique(rows[one]["step"]))
    spent = format_duration(int(pc.sum(moved["self_ns"]).as_py()) / steps)
    names = "AB"
    return [each.filter(pc.invert(mask)) for each, mask in zip(rows, loading, strict=True)], (
        f"Operators that make batches are left out ({spent} a step in {names[one]}): in {names[1 - one]} they run in "
        "DataLoader workers, where operators are not recorded"
    )


def _read_operators(rank: RankRun) -> pa.Table:
    rows = find_rows(rank, "operators", _OPERATOR_COLUMNS)
    return rows.filter(pc.is_valid(rows["step"]))


def _sum_by_step(rows: pa.Table, measure: str) -> dict[str, Floats]:
    summed = rows.group_by(["name", "step"]).aggregate([(measure, "sum")])
    places = {step: place for place, step in enumerate(sorted(pc.unique(rows["step"]).to_pylist()))}
    times = {str(name): np.zeros(len(places)) for name in pc.unique(rows["name"]).to_pylist()}
    columns = (summed[name].to_pylist() for name in ("name", "step", f"{measure}_sum"))
    for name, step, value_ns in zip(*columns, strict=True):
        times[str(name)][places[step]] = value_ns
    return times
