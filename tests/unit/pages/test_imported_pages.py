"""What pages say of an imported trace: of the devices that it used, of its modules, and of how its work was launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import Run
from collector.traces import import_trace
from profiler_server.analysis.operators.operator_groups import tabulate_modules
from profiler_server.pages.device.panels import build_panels
from profiler_server.pages.operators.charts import build_chart
from profiler_server.pages.operators.rows import SORTABLE
from profiler_server.pages.operators.state import parse_state
from profiler_server.pages.overall.facts import list_facts, read_used_devices
from tests.support.traces import Event, call, kernel, operator, step, training_steps, write_trace

FOUR = {"deviceProperties": [{"id": index, "name": "Tesla V100", "totalGlobalMem": 32 << 30} for index in range(4)]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return import_trace(write_trace(tmp_path / "t.json", training_steps(), FOUR), tmp_path / "run")


def test_of_the_devices_of_a_machine_only_those_that_were_used_are_listed(run: Run) -> None:
    rank = run.rank()
    facts = list_facts(run.manifest, rank.manifest, 1, read_used_devices(rank))
    assert [(fact.label, fact.value) for fact in facts if fact.label.startswith("Device")] == [
        ("Devices", "1 of 4 GPUs used"),
        ("Device", "0: Tesla V100, 32.0 GiB"),
    ]


def test_launches_say_why_late_and_short_ones_matter(run: Run) -> None:
    panels = build_panels(run.rank(), False)
    assert isinstance(panels, tuple)
    notes = {fact.label: fact.note for fact in panels[0].launches}
    assert notes["Launches"] == "every piece of work has its call"
    assert "waits for the host" in notes["Short kernels"]
    assert "bad where it was idle" in notes["Late starts"]


def test_modules_are_drawn_at_the_depth_at_which_all_fit(tmp_path: Path) -> None:
    """Forty leaves of one class in four layers: their classes by layer are the parts, and nothing is Other."""
    events: list[Event] = [step(1, 0, 9000), {**operator("nn.Module: Net_0", 0, 9000), "cat": "python_function"}]
    for layer in range(4):
        at = 10 + layer * 2000
        events.append({**operator(f"nn.Module: Layer_{layer}", at, 1900), "cat": "python_function"})
        for leaf in range(10):
            begin, number = at + 5 + leaf * 100, layer * 10 + leaf + 1
            events.append({**operator(f"nn.Module: Linear_{number}", begin, 90), "cat": "python_function"})
            events += [operator("aten::mm", begin + 5, 50), call(begin + 10, 5, number)]
            events.append(kernel("gemm", begin + 40, 10, number))
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    chart = build_chart(tabulate_modules(rank, None), parse_state({"group": "modules"}, SORTABLE), "modules")
    assert chart is not None
    assert sorted(row[0] for row in chart.rows) == [f"Net_0.Layer_{layer}.Linear_*" for layer in range(4)]
    assert {row[3] for row in chart.rows} == {"25.0 %"}
