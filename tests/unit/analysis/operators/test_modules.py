"""The tree of modules: what stands inside counts for what holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.analysis.operators.operator_groups import NO_MODULE, build_module_tree
from profiler_server.page import PageRequest
from profiler_server.pages.operators import build
from tests.support.runs import RunPlan, build_run
from tests.support.tables import operator, write_rows


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = build_run(tmp_path / "run", RunPlan())
    rows = [
        operator("aten::mm", module="Net_0.Block_0.Linear_0", device_self_ns=60, self_ns=6),
        operator("aten::mm", module="Net_0.Block_1", device_self_ns=10, self_ns=1),
        operator("aten::add", module="Net_0", device_self_ns=20, self_ns=2),
        operator("aten::copy_", device_self_ns=10, self_ns=1),
    ]
    write_rows(path, "operators", rows)
    return path


def test_a_module_holds_the_time_of_those_inside(run: Path) -> None:
    tree = build_module_tree(open_run(run).rank(0))
    assert [(node.name, node.depth, node.device_ns, node.own_device_ns, node.host_ns) for node in tree] == [
        ("Net_0", 0, 90, 20, 9),
        ("Block_0", 1, 60, 0, 6),
        ("Linear_0", 2, 60, 60, 6),
        ("Block_1", 1, 10, 10, 1),
        (NO_MODULE, 0, 10, 10, 1),
    ]
    assert tree[0].share_frac == pytest.approx(0.9)
    assert sum(node.own_device_ns for node in tree) == 100


def test_the_tree_stands_on_the_tab_of_modules_only(run: Path) -> None:
    def lines(group: str) -> list[str]:
        page = build(PageRequest(open_run(run), "run", 0, (0,), {"group": group}))
        return [line.name for line in page.modules.lines] if page.modules else []

    assert lines("modules") == ["Net_0", "Block_0", "Linear_0", "Block_1", NO_MODULE]
    assert lines("types") == []
