"""Which functions run in a phase and in a stage: shown with their flame graph, or why there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.format.run import Run
from profiler_server.stack_panel import StackPanel, build_phase_panel, build_stage_panel
from tests.support.runs import build_run
from tests.support.stacks import in_phase, in_stage, in_thread, library, own, write_stacks

ITEM = own("Photos.__getitem__", 31, "data.py")
ROWS = (
    in_phase("forward", 200, own("Net.forward", 7)),
    in_phase("tail", 61, own("accuracy", 88)),
    in_phase("tail", 39, own("log", 9)),
    in_phase("optimizer", 3, own("penalty", 4)),
    in_stage("read", 100, ITEM, library("Image.resize", "PIL/Image.py")),
)


def _show(path: Path, *rows: dict[str, Any]) -> StackPanel:
    panel = build_phase_panel(Run(write_stacks(build_run(path / "run"), rows)).rank(0))
    assert panel is not None
    return panel


def test_each_phase_names_its_function_and_the_longest_is_unfolded(tmp_path: Path) -> None:
    parts = _show(tmp_path, *ROWS).parts
    assert [(part.label, part.lead, part.is_open) for part in parts] == [
        ("Forward", "Net.forward() at train.py:7, 100 ± 1 %", True),
        ("Parameter update", "too few to name a function, 30 are needed", False),
        ("Tail", "accuracy() at train.py:88, 61 ± 9 %", False),
    ]
    tail = parts[2]
    assert [(row.function, row.place, row.share) for row in tail.rows] == [
        ("accuracy()", "train.py:88", "61 ± 9 %"),
        ("log()", "train.py:9", "39 ± 9 %"),
    ]
    assert tail.flame is not None
    assert [box.text for box in tail.flame.boxes] == ["Tail", "accuracy", "log"]
    assert parts[1].flame is None


def test_each_stage_names_its_function(tmp_path: Path) -> None:
    panel = build_stage_panel(Run(write_stacks(build_run(tmp_path / "run"), ROWS)).rank(0), 0)
    assert panel is not None
    (part,) = panel.parts
    assert (part.label, part.samples) == ("Read", "100 samples")
    assert part.flame is not None
    assert [(box.text, box.kind) for box in part.flame.boxes[1:]] == [
        ("Photos.__getitem__", "own"),
        ("PIL.Image.resize", "library"),
    ]


def test_other_threads_stand_below_the_phases(tmp_path: Path) -> None:
    rows = [in_thread("forward", 50, own("Live.run", 12), own("summarise", 30), stage="beside")]
    *_, part = _show(tmp_path, *ROWS, *rows).parts
    assert (part.label, part.lead) == (
        "Threads that run while the recorded one stands still",
        "summarise() at train.py:30, 100 ± 4 %",
    )
    assert part.flame is not None
    assert [box.text for box in part.flame.boxes[1:]] == ["Live.run", "summarise"]


def test_without_stacks_the_panel_says_how_to_get_them(tmp_path: Path) -> None:
    panel = build_phase_panel(Run(build_run(tmp_path / "run")).rank(0))
    assert panel is not None
    assert panel.notice is not None
    assert "stacks=True" in panel.notice.remedy
    assert not panel.parts
