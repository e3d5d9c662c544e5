"""Stacks and operators of a training whose step runs code of the user's between its modules."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.plants import Plant, plan_of
from tests.support.row_edits import Row
from tests.support.runs import MS
from tests.support.stacks import in_phase, library, own

MODULE = (library("Module._wrapped_call_impl", "torch/nn/modules/module.py"), own("Net.forward", 7, "model.py"))
"""What the loop calls to run its model."""
CALLS_MODEL = in_phase("forward", 20, *MODULE)
MINES = in_phase("forward", 80, own("mine", 41))
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


def call_operators(*calls: tuple[str, str, str, int, float], step: int = 11, **columns: float) -> list[Row]:
    """Return the operators of one detailed step: phase, name, shapes of the inputs, calls, and time in all, in ms."""
    return [
        {
            "step": step,
            "name": name,
            "type": "other",
            "phase": phase,
            "input_shapes": shapes,
            "count": count,
            "total_ns": int(spent * MS),
            "self_ns": int(spent * MS),
            "device_total_ns": 0,
            "device_self_ns": 0,
            **columns,
        }
        for phase, name, shapes, count, spent in calls
    ]


ONE_BY_ONE = (
    ("forward", "aten::select", "[[32,64],[],[]]", 32, 0.1),
    ("forward", "aten::linear", "[[64],[64,64],[64]]", 32, 16.0),
    ("forward", "aten::stack", "[[],[]]", 1, 0.1),
    ("backward", "AddmmBackward0", "[[1,64]]", 32, 30.0),
    ("backward", "aten::mm", "[[64,64],[64,64]]", 1, 4.0),
)
"""A loop over the 32 samples of a batch, in forward and backward."""

PLANTED: Mapping[str, Plant] = {
    "python_in_step": Plant(
        plan_of(), tables={"stacks": late(CALLS_MODEL, MINES, *TRAINS), "operators": spend_operators(forward=4.0)}
    ),
    "hot_line": Plant(
        plan_of(), tables={"stacks": late(in_phase("forward", 80, *MODULE, own("normalize", 41)), *TRAINS)}
    ),
    "rows_in_loop": Plant(plan_of(), tables={"operators": call_operators(*ONE_BY_ONE)}),
}
HEALTHY: Mapping[str, Plant] = {
    "a loop over time, with whole batches": Plant(
        plan_of(),
        tables={
            "operators": call_operators(
                ("forward", "aten::select", "[[60,32,64],[],[]]", 60, 0.5),
                ("forward", "aten::linear", "[[32,64],[64,64],[64]]", 60, 18.0),
                ("backward", "AddmmBackward0", "[[32,64]]", 60, 30.0),
            )
        },
    ),
    "sixty equal layers": Plant(
        plan_of(),
        tables={
            "operators": call_operators(
                ("forward", "aten::linear", "[[32,64],[64,64],[64]]", 60, 18.0),
                ("forward", "aten::select", "[[32,60,64],[],[]]", 1, 0.5),
            )
        },
    ),
}
"""Steps of which some operators are called often, and rightly."""
