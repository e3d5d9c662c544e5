"""Which operator and which module device work and calls belong to: none of it is left out."""

from __future__ import annotations

from pathlib import Path

from collector.traces import import_trace
from profiler_server.analysis.operators.operator_groups import build_module_tree
from tests.support.reading import read_events
from tests.support.traces import Event, annotation, call, copy, kernel, operator, step, write_trace


def _module(name: str, at_us: float, length_us: float) -> Event:
    return {**operator(f"nn.Module: {name}", at_us, length_us), "cat": "python_function"}


def test_work_that_no_operator_launched_has_rows_of_its_own(tmp_path: Path) -> None:
    events = [step(1, 0, 200), operator("aten::mm", 5, 10), call(6, 1, 1), kernel("gemm", 20, 40, 1)]
    events += [kernel("early", 70, 30, 77), copy(100, 5, 78)]
    events += [annotation("mine", 110, 20), call(112, 1, 2), kernel("bare", 120, 7, 2)]
    rows = read_events(tmp_path, events).tables["operators"].to_pylist()
    assert {row["name"]: (row["step"], row["count"], row["device_self_ns"]) for row in rows} == {
        "aten::mm": (1, 1, 40_000),
        "(no operator: launched before the trace began)": (1, 0, 35_000),
        "(no operator: launched outside of all)": (1, 0, 7_000),
    }


def test_backward_belongs_to_the_module_of_its_forward(tmp_path: Path) -> None:
    def forward(name: str, at_us: float, number: int) -> list[Event]:
        # aten::linear bears the number of the node that aten::addmm makes.
        outer = operator("aten::linear", at_us, 30, **{"Sequence number": number})
        return [
            _module(name, at_us - 1, 40),
            outer,
            operator("aten::addmm", at_us + 5, 20, **{"Sequence number": number}),
        ]

    def backward(at_us: float, number: int, correlation: int) -> list[Event]:
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        events = [operator(name, at_us, 40, **{"Sequence number": number, "Fwd thread id": 1})]
        events += [operator("aten::mm", at_us + 5, 20), call(at_us + 6, 1, correlation)]
        events += [kernel("gemm", at_us + 20, 10, correlation)]
        return [{**event, "tid": 200} if event["pid"] == 100 else event for event in events]

    events = [step(1, 0, 400), _module("Net_0", 0, 150), *forward("First_0", 10, 1), *forward("Second_0", 60, 2)]
    # An operator between the two makes no node and bears the number of the next one.
    events += [operator("aten::argmax", 52, 3, **{"Sequence number": 2})]
    events += [*backward(200, 2, 1), *backward(260, 1, 2), operator("aten::add_", 350, 5, **{"Sequence number": 9})]
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    nodes = {node.path: node.own_device_ns for node in build_module_tree(rank)}
    assert nodes == {"Net_0": 0, "Net_0.First_0": 10_000, "Net_0.Second_0": 10_000, "(outside of every module)": 0}
