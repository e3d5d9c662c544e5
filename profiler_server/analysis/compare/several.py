"""Several runs against one baseline: the comparison of each pair, corrected for all of them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.analysis.compare.comparison import OPERATORS, Comparison, Difference, compare_ranks
from profiler_server.analysis.compare.run_statistics import correct_chances

MOST_COMPARED = 8
"""The number of runs in one comparison, the baseline included."""


@dataclass(frozen=True)
class Row:
    """A phase or operator in all runs. `base_ns` is its time per step in the baseline. `cells` has an entry for each
    other run, None where that run has no steps, or where its comparison does not list the operator.
    """

    name: str
    base_ns: float
    cells: tuple[Difference | None, ...]


def compare_several(base: RankRun, others: Sequence[RankRun]) -> tuple[Comparison, ...]:
    """Return the comparison of one rank of the baseline with that of each other run.

    Raises as `compare_ranks` does, and RunError for a baseline without steps to compare.

    More runs are more tests: the p-values of all steps are corrected together (Holm), and so are those of all phases
    and of all operators.
    """
    found = [compare_ranks(base, other) for other in others]
    if found and not found[0].a_steps:
        raise RunError(f"{base.run_path.name} has no steps to compare with; choose another baseline")
    steps = _correct([[each.step] for each in found])
    phases = _correct([each.phases for each in found])
    operators = _correct([each.operators for each in found])
    return tuple(
        replace(each, step=step, phases=of_phases, operators=of_operators)
        for each, (step,), of_phases, of_operators in zip(found, steps, phases, operators, strict=True)
    )


def _correct(lists: Sequence[Sequence[Difference]]) -> Iterator[tuple[Difference, ...]]:
    """Yield the lists with p-values corrected for the tests of all lists. A change that was corrected before, for tests
    that its list leaves out, gets the larger value."""
    tested = [part.p for parts in lists for part in parts if part.p is not None and (part.a_ns or part.b_ns)]
    corrected = iter(correct_chances(tested))
    for parts in lists:
        yield tuple(
            replace(part, corrected_p=max(next(corrected), part.corrected_p or 0.0))
            if part.p is not None and (part.a_ns or part.b_ns)
            else part
            for part in parts
        )


def list_phases(found: Sequence[Comparison]) -> tuple[Row, ...]:
    """Return a row for each phase that any of the runs has."""
    rows = _list_rows([each.phases if each.b_steps else () for each in found])
    return tuple(row for row in rows if any(cell is not None and (cell.a_ns or cell.b_ns) for cell in row.cells))


def list_operators(found: Sequence[Comparison]) -> tuple[Row, ...]:
    """Return the operators that changed most in any run, the most changed one first. Empty if runs are measured
    differently, on the host and on the device.
    """
    if len({each.measure for each in found}) > 1:
        return ()
    rows = _list_rows([each.operators for each in found])
    return tuple(sorted(rows, key=lambda row: -_find_largest(row))[:OPERATORS])


def _find_largest(row: Row) -> float:
    return max(abs(cell.change_ns) for cell in row.cells if cell is not None)


def _list_rows(lists: Sequence[Sequence[Difference]]) -> list[Row]:
    by_name = [{part.name: part for part in parts} for parts in lists]
    names = dict.fromkeys(name for parts in by_name for name in parts)
    rows = []
    for name in names:
        cells = tuple(parts.get(name) for parts in by_name)
        rows.append(Row(name, next(cell.a_ns for cell in cells if cell is not None), cells))
    return rows
