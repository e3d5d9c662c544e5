"""Stacks and operators of a training whose step runs code of the user's between its modules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.plants import Plant, plan_of
from tests.support.row_edits import Row
from tests.support.runs import MS
from tests.support.stacks import in_phase, library, own

MODULE = (library("Module._wrapped_call_impl", "torch/nn/modules/module.py"), own("Net.forward", 7, "model.py"))
"""What the loop calls to run its model."""
TRAINS = (
    in_phase("backward", 150, library("Tensor.backward", "torch/_tensor.py")),
    in_phase("optimizer", 20, library("AdamW.step", "torch/optim/adamw.py")),
)


def late(*rows: Row) -> list[Row]:
    """Return rows of stacks as the table has them, from after the warm-up."""
    return [{"start_ns": 10**12, **row} for row in rows]


def spend_operators(**phases_ms: float) -> list[Row]:
    """Return the operators of one detailed step: so long in each phase."""
    return [
        {
            "step": 11,
            "name": "aten::mm",
            "type": "matmul",
            "phase": phase,
            "count": 10,
            "total_ns": int(spent * MS),
            "self_ns": int(spent * MS),
            "device_total_ns": 0,
            "device_self_ns": 0,
        }
        for phase, spent in phases_ms.items()
    ]


def call_operators(*calls: tuple[str, str, str, int, float]) -> list[Row]:
    """Return the operators of one detailed step: phase, name, shapes of the inputs, calls, and time in all, in ms."""
    return [
        {
            "step": 11,
            "name": name,
            "type": "other",
            "phase": phase,
            "input_shapes": shapes,
            "count": count,
            "total_ns": int(spent * MS),
            "self_ns": int(spent * MS),
            "device_total_ns": 0,
            "device_self_ns": 0,
        }
        for phase, name, shapes, count, spent in calls
    ]


ATTENTION = (
    ("forward", "aten::bmm", "[[8,64,16],[8,16,64]]", 1, 2.0),
    ("forward", "aten::mul", "[[2,4,64,64],[]]", 1, 2.0),
    ("forward", "aten::_softmax", "[[2,4,64,64],[]]", 1, 4.0),
    ("forward", "aten::bmm", "[[8,64,64],[8,64,16]]", 1, 2.0),
    ("backward", "aten::_softmax_backward_data", "[[2,4,64,64],[2,4,64,64]]", 1, 6.0),
    ("forward", "aten::bmm", "[[8,64,16],[8,16,16]]", 1, 5.0),
)
"""A softmax between two products, and at last a product that has nothing to do with it."""

PLANTED: Mapping[str, Plant] = {
    "hot_line": Plant(
        plan_of(), tables={"stacks": late(in_phase("forward", 80, *MODULE, own("normalize", 41)), *TRAINS)}
    ),
    "worth_trying": Plant(plan_of(), tables={"operators": call_operators(*ATTENTION)}),
}
