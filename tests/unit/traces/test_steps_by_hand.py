"""Steps of a trace that are chosen by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.errors import TraceError
from collector.traces import read_trace
from collector.traces.format import ReadOptions
from tests.support.reading import codes_of
from tests.support.traces import annotation, operator, training_steps, write_trace


@pytest.mark.parametrize(
    ("chosen", "lengths"),
    [
        ("whole", [2_790_000]),
        ("optimizer", [1000_000] * 2),
        ("aten::linear", [1000_000] * 2),
        ("^Profiler", [999_000] * 3),
    ],
)
def test_steps_can_be_told_by_hand(tmp_path: Path, chosen: str, lengths: list[int]) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(3))
    read = read_trace(path, ReadOptions(steps_from=chosen))
    found = [row["duration_ns"] for row in read.tables["steps"].to_pylist() if row["kind"] == "train"]
    assert found[-len(lengths) :] == lengths or found[: len(lengths)] == lengths
    assert read.facts.facts["steps_told_by"].startswith("hand")


def test_fetches_chosen_by_hand_begin_steps_however_long_they_take(tmp_path: Path) -> None:
    events = [
        event
        for at in range(3)
        for event in (annotation("enumerate(DataLoader)#x", at * 100, 90), operator("aten::mm", at * 100 + 92, 6))
    ]
    read = read_trace(write_trace(tmp_path / "t.json", events), ReadOptions(steps_from="DataLoader"))
    assert [row["duration_ns"] for row in read.tables["steps"].to_pylist()] == [100_000, 100_000, 98_000]


@pytest.mark.parametrize("chosen", ["(", "nothing like it"])
def test_steps_that_are_not_there_are_refused(tmp_path: Path, chosen: str) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(3))
    with pytest.raises(TraceError, match="--steps-from"):
        read_trace(path, ReadOptions(steps_from=chosen))


@pytest.mark.parametrize(("chosen", "codes"), [("aten::", {"steps_within_steps"}), ("DataLoader", set())])
def test_steps_by_hand_ask_for_no_other_choice_but_are_told_where_they_are_parts_of_steps(
    tmp_path: Path, chosen: str, codes: set[str]
) -> None:
    read = read_trace(write_trace(tmp_path / "t.json", training_steps()), ReadOptions(steps_from=chosen))
    assert codes_of(read) == {"steps_inferred", *codes}
    assert not any("import it again" in warning.text for warning in read.warnings)
