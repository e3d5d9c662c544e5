"""Detailed windows that open by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from collector import open_run
from collector.format.parts import build_table_from_rows
from collector.notes import WORDS_FILE, Notes, write_notes
from collector.options import parse_options
from collector.ring.clock import Clock
from collector.ring.windows import Order, read_order, send_order
from collector.ring.words import WordLog
from collector.sidecar.assemblers.trigger import LEAST_APART_NS, Finding, Step, StepWatch, TriggerAssembler
from tests.support.runs import MS, RunPlan, build_steps
from tests.support.scripts import run_script


def make_steps(count: int, length_ms: float = 20.0, first: int = 1) -> list[Step]:
    """Steps like those of a busy host: 10 % of spread."""
    random = Random(first)
    return [
        Step(first + number, int(length_ms * MS * random.gauss(1.0, 0.1)), MS, False, False) for number in range(count)
    ]


def see_all(watch: StepWatch, steps: list[Step]) -> list[Finding]:
    return [finding for finding in map(watch.see, steps) if finding is not None]


def test_a_healthy_run_shows_nothing() -> None:
    assert see_all(StepWatch(), make_steps(5000)) == []


def test_a_step_far_longer_than_usual_is_found() -> None:
    watch = StepWatch()
    see_all(watch, make_steps(100))
    (found,) = see_all(watch, [Step(101, 122 * MS, MS, False, False)])
    assert (found.trigger, found.step) == ("outlier", 101)
    assert found.text.startswith("step 101 took 6.")
    assert found.text.endswith("× the median before it")


def test_a_stall_that_comes_again_is_found_once() -> None:
    watch = StepWatch()
    steps = [step._replace(duration_ns=200 * MS) if step.step % 100 == 0 else step for step in make_steps(1000)]
    assert [finding.step for finding in see_all(watch, steps)] == [100]


@pytest.mark.parametrize(
    ("length_ms", "steps"),
    [
        (20.0, [Step(301, 900 * MS, MS, True, False)]),  # it starts workers
        (20.0, [Step(301, 900 * MS, MS, False, True)]),  # it is detailed
        (20.0, [Step(301, 30 * MS, MS, False, True), Step(302, 900 * MS, MS, False, False)]),  # it closes a window
        (0.5, [Step(301, 9 * MS, 0, False, False)]),  # a hiccup of short steps
    ],
)
def test_a_long_step_with_a_reason_is_not_worth_a_window(length_ms: float, steps: list[Step]) -> None:
    watch = StepWatch()
    see_all(watch, make_steps(300, length_ms))
    assert see_all(watch, steps) == []


def test_steps_that_wait_for_data_are_found_once_in_a_stretch() -> None:
    watch = StepWatch()
    see_all(watch, make_steps(100))
    starved = [step._replace(data_wait_ns=step.duration_ns * 7 // 10) for step in make_steps(300, 40.0, 101)]
    assert [(found.trigger, found.text) for found in see_all(watch, starved)] == [
        ("starvation", "steps 101 to 130 waited for data for 70 % of their time")
    ]
    assert see_all(watch, make_steps(50, 40.0, 401)) == []


class Recorded:
    """A rank that records, and the assembler that watches it."""

    def __init__(self, path: Path, **options: object) -> None:
        self.folder = path / "profiler" / "rank_0"
        (self.folder / "events").mkdir(parents=True)
        self.log_file = self.folder / "events" / WORDS_FILE
        self.log = WordLog(self.log_file, 1 << 10)
        write_notes(Notes(0, 1, None, "", 0, 0, 0, 0, parse_options(options).as_dict()), self.folder)
        self.assembler = TriggerAssembler(self.folder, Clock(0, 0, 0))

    def watch(self, long_steps: dict[int, int], steps: int = 200, apart_ns: int = 0) -> None:
        """Show steps, those given as long as given in ms, each after `apart_ns` more."""
        rows = build_steps(RunPlan(steps=steps))
        for number, row in enumerate(rows):
            row["duration_ns"] = long_steps.get(row["step"], 65) * MS
            row["start_ns"] += number * apart_ns
        self.assembler.watch("steps", build_table_from_rows("steps", rows))

    def list_sent(self) -> list[tuple[str, int]]:
        facts = self.assembler.describe().get("facts", {"triggers": []})
        return [(entry["trigger"], entry["step"]) for entry in facts["triggers"]]


def test_an_outlier_orders_a_window_of_the_next_steps(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    rank.watch({120: 700})
    assert read_order(rank.log_file) == Order(0, 3, "outlier")
    assert rank.list_sent() == [("outlier", 120)]


@pytest.mark.parametrize(
    ("options", "long_steps"),
    [({}, {}), ({"triggers": False}, {120: 700}), ({"window": None}, {120: 700}), ({"window": (150, 3)}, {120: 700})],
)
def test_a_run_that_is_healthy_or_takes_no_windows_or_has_one_to_come_orders_none(
    tmp_path: Path, options: dict[str, object], long_steps: dict[int, int]
) -> None:
    rank = Recorded(tmp_path, **options)
    rank.watch(long_steps)
    assert read_order(rank.log_file) is None
    assert rank.assembler.describe() == {}


def test_windows_are_minutes_apart_and_five_at_most(tmp_path: Path) -> None:
    rank = Recorded(tmp_path / "fast")
    rank.watch({100: 700, 110: 1400, 120: 2800})
    assert rank.list_sent() == [("outlier", 100)]
    slow = Recorded(tmp_path / "slow")
    slow.watch({100 + 10 * number: 700 * 2**number for number in range(10)}, apart_ns=LEAST_APART_NS // 10)
    assert len(slow.list_sent()) == 5


def test_an_order_by_hand_that_still_waits_is_not_replaced(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    send_order(rank.log_file, Order(500, 2))
    rank.watch({120: 700})
    assert read_order(rank.log_file) == Order(500, 2)


def test_an_order_by_hand_for_the_next_step_is_not_replaced_before_it_can_be_taken(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    send_order(rank.log_file, Order(0, 2))
    rank.watch({120: 700})
    rank.watch({120: 1400})
    assert read_order(rank.log_file) == Order(0, 2)
    rank.watch({120: 2800})
    assert read_order(rank.log_file) == Order(0, 3, "outlier")


def test_a_recorder_that_takes_over_knows_what_was_ordered(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    rank.watch({120: 700})
    successor = TriggerAssembler(rank.folder, Clock(0, 0, 0))
    successor.restore(json.loads(json.dumps(rank.assembler.checkpoint())))
    assert successor.describe() == rank.assembler.describe()


TRAINING = """
import itertools, sys, time, torch
from pathlib import Path
from collector import Profiler
torch.set_num_threads(1)
profiler = Profiler(sys.argv[1], window=(2, 1))
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
events = Path(sys.argv[1]) / "profiler/rank_0/events"
began_s = time.monotonic()
for step in itertools.count(1):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    time.sleep(3.0 if step == 80 else 0.02)
    optimizer.step()
    if len(list(events.glob("window-*.note.json"))) > 1 or time.monotonic() > began_s + 90:
        break
profiler.analyse()
"""


def test_a_planted_outlier_opens_a_window_in_a_real_training(tmp_path: Path) -> None:
    """The outlier is what a watch finds first in the steps: a busy machine may plant one of its own before."""
    run_script(tmp_path, TRAINING.replace("sys.argv[1]", "'run'"))
    rank = open_run(tmp_path / "run").rank()
    rows = [row for row in rank.table("steps").to_pylist() if row["kind"] == "train"]
    names = ("step", "duration_ns", "data_wait_ns", "loader_start_ns", "detailed")
    (found, *_) = see_all(StepWatch(), [Step(*(row[name] for name in names)) for row in rows])
    first, second = rank.manifest.windows
    assert (first.trigger, second.trigger) == ("option", "outlier")
    assert found.step <= 80
    assert found.step < second.first_step
    (entry,) = rank.manifest.facts["triggers"]
    assert (entry["step"], entry["text"]) == (found.step, found.text)


class Stacks:
    """Stands in for the stacks: the lines that take the time are in no window."""

    def misses_lines(self) -> bool:
        return True


def test_one_window_is_ordered_for_lines_that_no_window_holds(tmp_path: Path) -> None:
    rank = Recorded(tmp_path)
    rank.assembler.listen({"stacks": Stacks()})  # type: ignore[dict-item]
    rank.watch({})
    assert read_order(rank.log_file) == Order(0, 3, "lines")
    rank.watch({})
    assert rank.list_sent() == [("lines", 200)]
    rank.watch({120: 700})
    assert [trigger for trigger, _ in rank.list_sent()] == ["lines", "outlier"], "others need not wait for it"
