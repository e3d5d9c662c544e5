"""A sample of the endings. The whole is run by hand: `python -m tests.endings`; docs/concepts/testing.md says what is compared."""

from __future__ import annotations

import pytest

from tests.endings.cells import KINDS, WAYS, Cell, Choice, list_cells
from tests.endings.comparison import Limits
from tests.endings.series import run_cell
from tests.endings.tables import render_line

# Kind, way, door: sorts of jobs and of ways that nothing else in the gate compares with a bare job.
SAMPLE = (
    ("plain", "Ctrl-C", "run"),
    ("plain", "window being written, sys.exit", "run"),
    ("plain", "out of memory", "script"),
    ("fsdp2", "out of memory", "script"),
    ("workers", "exception in evaluation", "run"),
    ("threads", "window open", "script"),
    ("fork", "os._exit", "run"),
    ("notebook", "return", "script"),
    ("ddp", "model first", "run"),
)
NO_TIMES = Limits(None, None)  # the gate works on other tests beside them


def find_cell(kind: str, way: str, door: str) -> Cell:
    (cell,) = list_cells(Choice((kind,), (way,), ("idle",), (door,)))
    return cell


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way", "door"), SAMPLE, ids=[" / ".join(one) for one in SAMPLE])
def test_a_recorded_training_ends_as_a_bare_one(kind: str, way: str, door: str) -> None:
    result = run_cell(find_cell(kind, way, door), 1, limit_s=120.0, limits=NO_TIMES)
    assert result.differences == (), render_line(result)


def test_every_kind_and_every_way_has_a_cell() -> None:
    cells = list(list_cells(Choice()))
    assert {cell.kind.name for cell in cells} == {kind.name for kind in KINDS}
    assert {cell.way.name for cell in cells} == {way.name for way in WAYS}
    assert len({cell.name for cell in cells}) == len(cells) > 1000
    ranks = list(list_cells(Choice(ranks=(2, 3, 4), ways=("collective skipped",))))
    assert {cell.ranks for cell in ranks} == {2, 3, 4}
