"""Several runs against one baseline: each as alone, but a change must stand out among the changes of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.errors import RunError
from profiler_server.analysis.compare.comparison import compare_ranks
from profiler_server.analysis.compare.several import compare_several, list_operators, list_phases
from profiler_server.commands.compare import render_several
from tests.support.histories import Recorded, build_recorded
from tests.support.runs import RunPlan, build_run


def test_each_run_is_compared_as_alone_and_corrected_for_all(tmp_path: Path) -> None:
    runs = [build_recorded(tmp_path / f"r{at}", Recorded(extra_ms=9.0 * (at == 1), seed=at)) for at in range(5)]
    base, *others = [run.rank() for run in runs]
    found, alone = compare_several(base, others), [compare_ranks(base, other) for other in others]
    assert [each.step.change_ns for each in found] == [each.step.change_ns for each in alone]
    assert found[0].step.is_clear
    for each, single in zip(found, alone, strict=True):
        for part, before in zip((each.step, *each.phases), (single.step, *single.phases), strict=True):
            assert (part.corrected_p or 0.0) >= (before.corrected_p or 0.0)
    smallest = min(each.step.p or 1.0 for each in alone)
    assert min(each.step.corrected_p or 1.0 for each in found) == pytest.approx(4 * smallest)


def test_one_run_is_what_the_comparison_of_two_is(tmp_path: Path) -> None:
    a, b = (build_recorded(tmp_path / name, Recorded(seed=at)).rank() for at, name in enumerate("ab"))
    assert compare_several(a, [b]) == (compare_ranks(a, b),)


def test_a_run_without_steps_has_empty_cells_and_cannot_be_the_baseline(tmp_path: Path) -> None:
    a = build_recorded(tmp_path / "a").rank()
    b = build_recorded(tmp_path / "b", Recorded(extra_ms=9.0, seed=3)).rank()
    none = build_recorded(tmp_path / "none", Recorded(steps=0)).rank()
    found = compare_several(a, [b, none])
    assert {row.cells[1] for row in list_phases(found)} == {None}
    assert all(row.cells[0] is not None for row in list_phases(found))
    with pytest.raises(RunError, match="none has no steps to compare with"):
        compare_several(none, [a, b])


def test_a_terminal_gets_a_column_for_each_run(tmp_path: Path) -> None:
    runs = [build_recorded(tmp_path / f"r{at}", Recorded(extra_ms=9.0 * (at == 1), seed=at)) for at in range(3)]
    found = compare_several(runs[0].rank(), [run.rank() for run in runs[1:]])
    lines = render_several(["base", "new\x1b[31m", "same"], found).splitlines()
    assert lines[:3] == ["A  base  (baseline)", "B  new?[31m", "C  same"]
    forward = next(line for line in lines if line.startswith("Forward"))
    assert forward.split()[-2].endswith("ms*") or "ms*" in forward
    assert max(map(len, lines[:-1])) <= 80


def test_operators_of_all_runs_are_listed_the_most_changed_first(tmp_path: Path) -> None:
    ranks = [build_recorded(tmp_path / name).rank() for name in "ab"]
    bare = build_run(tmp_path / "bare", RunPlan(operators=False))
    assert bare
    rows = list_operators(compare_several(ranks[0], [ranks[1]]))
    assert rows
    assert all(cell is not None for row in rows for cell in row.cells)
