"""The share of operators that grows with the width of a batch, and nodes of backward that computed nothing that was used."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from profiler_server.analysis.operators.avoidable import find_wide_share
from profiler_server.analysis.stacks.line_work import weigh_unused
from tests.support.cases import Plant, build_case_run
from tests.support.row_edits import Row

TIMES = {"total_ns": 0, "device_total_ns": 0, "device_self_ns": 0}


def call(name: str, shapes: str, self_ns: int, count: int = 1, phase: str = "forward") -> Row:
    row = {"step": 11, "name": name, "type": "other", "phase": phase, "input_shapes": shapes}
    return {**row, **TIMES, "self_ns": self_ns, "count": count}


EMBED = call("aten::embedding", "[[900,16],[8,40]]", 30)
PROJECT = call("aten::addmm", "[[4],[320,16],[16,4]]", 20, phase="backward")
NORM = call("aten::linalg_vector_norm", "[[900,16]]", 50)
CELL = call("aten::gru_cell", "[[8,16],[8,16]]", 100, count=40)
STRIDED = call("aten::convolution", "[[8,4,20],[16,4,3]]", 50)
NARROW = call("aten::convolution", "[[8,4,10],[16,4,3]]", 50)
UPDATE = call("aten::_foreach_add_", "[[40,40]]", 500, phase="optimizer")
PACK = call("aten::_pack_padded_sequence", "[[8,40,16],[8]]", 1)


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ([EMBED, PROJECT, NORM], 0.5),
        ([NORM], 0.0),
        ([CELL, UPDATE, call("aten::gru_cell", "[[8,16]]", 100, count=39)], 0.5),
        ([EMBED, PROJECT, NORM, PACK], 0.0),
        ([STRIDED, NARROW], 0.5),
        ([UPDATE], None),
        ([], None),
    ],
    ids=["wide", "none", "once for each position", "packed", "behind a stride", "no model", "no window"],
)
def test_operators_as_wide_as_the_batch_grow_with_it(rows: list[Row], share: float | None, tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(tables={"operators": rows} if rows else {}))
    assert find_wide_share(run.rank(0), 40, 8) == share


def test_a_node_that_ran_twice_is_weighed_by_the_time_that_was_for_nothing() -> None:
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    rows = pa.table(
        {
            "name": [node, "aten::mm", node, node, node],
            "sequence": pa.array([7, 7, 7, 8, None], pa.int64()),
            "start_ns": [0, 1, 50, 60, 70],
        }
    )
    assert weigh_unused(rows, ((7, 7, 0, 2), (8, 9, 0, 1))).tolist() == [1.0, 0.0, 0.0, 0.5, 0.0]
    assert weigh_unused(rows, ((7, 7, 1, 2),)).tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert weigh_unused(rows, ()).tolist() == [0.0] * 5
