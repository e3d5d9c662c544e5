"""Changes are compared with the unchanged runs beside them, and only a gain beyond their scatter counts."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import UsageError
from collector.launch.command import run_command
from collector.launch.script import Program
from collector.launch.trying import RESULTS_FILE, Trying, count_epoch, list_candidates, read_turn, try_changes
from collector.launch.trying.applying import Candidate, Change
from collector.launch.trying.inside import Span
from collector.launch.trying.lines import list_edits
from collector.launch.trying.report import describe, list_results
from collector.launch.trying.search import OutOfTime, Search, TrialFailed
from collector.launch.trying.turns import Turn, compare_turns, estimate
from profiler_server.diagnosis.knobs import Change as Advised
from tests.support.plants import Plant, build_case_run
from tests.support.row_edits import begin_epochs
from tests.support.runs import RunPlan, build_run

MS = 1e6


def _candidate(knob: str, label: str = "", **change: Any) -> Candidate:
    return Candidate(knob, label or knob, change or {knob: 1}, f"{knob}()")


class World:
    """A script whose step is known: `step` of a change at the nth turn of all, in ns. `most` turns fit into the time."""

    def __init__(self, step: Callable[[Change, int], float], most: int = 10_000, updates: int = 10_000) -> None:
        self.step, self.most, self.updates = step, most, updates
        self.turns = 0
        self.order: list[Change] = []
        self.alive: list[Change] = []
        self.starts: list[Change] = []

    def search(self, **how: Any) -> Search:
        return Search(lambda change: Process(self, change), lambda label, found: None, **how)


class Process:
    def __init__(self, world: World, change: Change) -> None:
        self.world, self.change, self.done = world, change, 0
        world.alive.append(change)
        world.starts.append(change)
        assert len(world.alive) <= 5

    def play(self, span: Span) -> Turn:
        self.world.turns += 1
        self.world.order.append(self.change)
        if self.world.turns > self.world.most:
            raise OutOfTime
        if "bad" in self.change:
            raise TrialFailed("RuntimeError: Adam does not support sparse gradients")
        step = self.world.step(self.change, self.world.turns)
        count = min(span.updates, self.world.updates - self.done)
        count = max(min(count, int(span.seconds * 1e9 / step)), min(span.least, count))
        self.done += count
        return Turn((step,) * count, (2.1 if "odd" in self.change else 2.0,) * count, self.done >= self.world.updates)

    def end(self) -> None:
        self.world.alive.remove(self.change)


def _noise(count: int) -> float:
    return 1.0 + 0.01 * math.sin(7.3 * count)


def _half_if_good(change: Change, count: int) -> float:
    return 100 * MS * _noise(count) * (0.5 if "good" in change else 1.0)


def test_the_change_that_gains_is_found_with_its_interval() -> None:
    world = World(_half_if_good)
    search = world.search()
    search.run([_candidate("good"), _candidate("odd"), _candidate("other")])
    assert search.best is not None
    assert search.best.label == "good"
    low, high = search.bound_gain(search.best)
    assert 0.45 < low < 0.5 < high < 0.55
    assert [search.has_same_losses(entry) for entry in search.tried[:3]] == [True, False, True]
    assert search.compare_losses(search.tried[1]) == pytest.approx(0.05)
    assert world.alive == []


def test_noise_alone_gains_nothing() -> None:
    search = World(lambda change, count: 100 * MS * _noise(count)).search()
    search.run([_candidate(name) for name in "abcdefgh"])
    assert search.best is None


def test_what_other_programs_take_hits_all_alike() -> None:
    """Every third turn lasts three times as long, at random; the change saves a tenth."""
    lot = random.Random(1)
    search = World(lambda change, count: 100 * MS * lot.choice((1, 1, 3)) * (0.9 if change == {"a": 1} else 1)).search()
    search.run([_candidate("a"), _candidate("b")])
    assert all(search.bound_gain(entry)[0] < 0.1 + 0.9 * (entry.label == "a") for entry in search.tried)
    assert search.best is None or search.best.label == "a"
    spikes = World(lambda change, count: 100 * MS * (5 if count % 11 == 0 else 1) * (0.8 if change == {"a": 1} else 1))
    search = spikes.search()
    search.run([_candidate("a"), _candidate("b")])
    assert search.best is not None
    assert search.best.label == "a"
    assert search.best.gain_frac == pytest.approx(0.2, abs=0.03)


def test_changes_of_different_knobs_are_combined_and_of_one_knob_not() -> None:
    saved = {"a": 0.7, "b": 0.8, "c": 0.75}
    search = World(lambda change, n: 100 * MS * _noise(n) * math.prod(saved[name] for name in change)).search()
    search.run([_candidate("one", "a", a=1), _candidate("two", "b", b=1), _candidate("one", "c", c=1)])
    assert search.best is not None
    assert search.best.label == "a + b"
    assert search.best.gain_frac == pytest.approx(0.44, abs=0.03)


def test_changes_that_set_the_same_argument_are_not_combined() -> None:
    search = World(lambda change, n: 100 * MS * _noise(n) * 0.7 ** len(change)).search()
    none = replace(_candidate("workers"), keywords={"num_workers": 0, "persistent_workers": None})
    search.run([none, replace(_candidate("persistent"), change={"loader.persistent_workers": 1})])
    assert search.best is not None
    assert len(search.best.candidates) == 1


def test_a_combination_that_fails_is_tried_once() -> None:
    class Picky(Process):
        def play(self, span: Span) -> Turn:
            if {"a", "b"} <= self.change.keys():
                raise TrialFailed("RuntimeError: fused does not support sparse gradients")
            return super().play(span)

    left = {"a": 0.6, "b": 0.8, "c": 0.9}
    world = World(lambda change, n: 100 * MS * _noise(n) * math.prod(left[name] for name in change))
    search = Search(lambda change: Picky(world, change), lambda label, found: None)
    search.run([_candidate("a"), _candidate("b"), replace(_candidate("c"), is_slow=True)])
    assert search.best is not None
    assert search.best.label == "a + c"
    assert [entry.label for entry in search.tried if entry.failure] == ["a + b"]


def test_two_changes_that_gain_the_same_time_are_not_combined() -> None:
    search = World(lambda change, count: 100 * MS * _noise(count) * (0.7 if change else 1.0)).search()
    search.run([_candidate("a"), _candidate("b")])
    assert search.best is not None
    assert len(search.best.candidates) == 1


def test_a_drift_of_the_machine_is_no_gain() -> None:
    search = World(lambda change, count: 100 * MS * (1.0 - 0.002 * count)).search()
    search.run([_candidate(name) for name in "abc"])
    assert search.best is None


@pytest.mark.parametrize("most", range(0, 60, 4))
def test_what_is_known_when_the_time_is_over_stays(most: int) -> None:
    world = World(_half_if_good, most)
    search = world.search()
    search.run([_candidate("good"), _candidate("other")])
    assert world.alive == []
    assert search.best is not None or most < 16
    json.dumps(describe(search))
    assert list_results(search, {}) if search.bases else most == 0


def test_rounds_end_where_other_changes_need_the_time() -> None:
    world = World(lambda change, count: 100 * MS * (1 + 0.3 * math.sin(count)))
    search = world.search(left_s=lambda: 100.0 - world.turns)
    search.run([_candidate(name) for name in "abcdefgh"])
    assert all(len(entry.lives[0].logs) >= 5 for entry in search.tried)


def test_changes_whose_start_takes_long_are_not_all_started_at_once() -> None:
    world = World(_half_if_good)
    search = world.search(left_s=lambda: 100.0 - 5 * len(world.starts))
    search.run([_candidate(name) for name in ("good", "a", "b", "c")])
    assert world.starts[:5] == [{}, {"good": 1}, {"a": 1}, {"b": 1}, {"c": 1}]
    short = World(_half_if_good)
    search = short.search(left_s=lambda: 40.0 - 15 * len(short.starts))
    search.run([_candidate("good"), _candidate("a")])
    assert short.starts[:3] == [{}, {"good": 1}, {}]


def test_a_hopeless_change_leaves_after_two_turns() -> None:
    world = World(lambda change, count: 100 * MS * _noise(count) * (1.6 if "slow" in change else 1.0))
    world.search().run([_candidate("slow"), _candidate("other")])
    assert world.order.count({"slow": 1}) == 3, "two behind warming up"
    world = World(lambda change, count: 100 * MS * (50 if "slow" in change else 1.0))
    search = world.search()
    search.run([_candidate("slow"), _candidate("other")])
    assert world.order.count({"slow": 1}) == 2, "its first turn was cut short"
    assert search.tried[0].gain_frac == pytest.approx(-49)


def test_a_value_that_is_surely_worse_than_another_of_its_knob_leaves() -> None:
    saved = {1: 0.5, 2: 0.8}
    world = World(lambda change, n: 100 * MS * (1 + 0.05 * math.sin(7.3 * n)) * saved.get(change.get("count", 0), 1))
    search = world.search()
    search.run([_candidate("workers", "one", count=1), _candidate("workers", "two", count=2)])
    assert search.best is not None
    assert search.best.label == "one"
    assert len(search.tried[1].lives) == 1


def test_a_script_that_ends_early_has_shorter_turns_next_time() -> None:
    search = World(lambda change, count: MS * _noise(count) * (0.5 if change else 1.0), updates=1000).search()
    search.run([_candidate("a")])
    assert search.turn_s < 0.3
    assert search.best is not None
    few = World(_half_if_good, updates=5).search()
    with pytest.raises(TrialFailed, match="ended before 10 updates"):
        few.run([_candidate("a")])


class Restarting(Process):
    """Each epoch of 20 updates begins with 30 steps' worth of starting workers, unless they persist."""

    def play(self, span: Span) -> Turn:
        begun = self.done
        turn = super().play(span)
        wait = 0.0 if self.change else 30.0
        at = zip(range(begun, self.done), turn.steps_ns, strict=True)
        return replace(turn, steps_ns=tuple(each * (1.0 + wait * (n % 20 == 0)) for n, each in at))


def test_turns_of_whole_epochs_have_what_happens_once_in_an_epoch() -> None:
    world = World(lambda change, count: 10 * MS * _noise(count))
    search = Search(lambda change: Restarting(world, change), lambda label, found: None, epoch=20)
    search.run([_candidate("persistent")])
    assert search.best is not None
    low, high = search.bound_gain(search.best)
    assert 0.55 < low < 0.6 < high < 0.65


@pytest.mark.parametrize(("wait_ms", "counted"), [(0.0, 0), (500.0, 15)])
def test_an_epoch_counts_if_its_beginning_takes_much_of_it(wait_ms: float, counted: int, tmp_path: Path) -> None:
    run = build_case_run(tmp_path, Plant(edit=begin_epochs(15, wait_ms)))
    assert count_epoch(run.path) == counted


def test_a_script_without_epochs_has_none_that_counts(tmp_path: Path) -> None:
    assert count_epoch(build_run(tmp_path / "run")) == 0


def test_no_more_processes_than_fit_into_memory_are_there_at_once() -> None:
    world = World(_half_if_good)
    search = world.search(count=lambda: 1)
    search.run([_candidate("good"), _candidate("a"), _candidate("b")])
    assert search.best is not None
    assert len(search.bases) >= 4


def test_a_trial_that_fails_is_one_line_and_the_others_go_on() -> None:
    world = World(_half_if_good)
    search = world.search()
    search.run([_candidate("bad"), _candidate("good")])
    assert search.tried[0].failure == "RuntimeError: Adam does not support sparse gradients"
    assert search.best is not None
    assert search.best.label == "good"
    assert world.alive == []


def test_what_is_known_at_ctrl_c_stays() -> None:
    def step(change: Change, count: int) -> float:
        if count == 30:
            raise KeyboardInterrupt
        return _half_if_good(change, count)

    world = World(step)
    search = world.search()
    with pytest.raises(KeyboardInterrupt):
        search.run([_candidate("good"), _candidate("other")])
    assert search.best is not None
    assert world.alive == []


def test_the_mean_leaves_out_what_stands_out() -> None:
    assert estimate([0.2]) == (0.2, 0.1, 1)
    assert estimate([-0.5] * 7 + [9.0])[0] == -0.5
    mean, error, freedom = estimate([0.1, 0.2, 0.3])
    assert (mean, error, freedom) == pytest.approx((0.2, 0.1 / math.sqrt(3), 2))


def test_what_is_tried_can_be_changed_from_outside_and_what_takes_long_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [
        Advised("compile", "compile", {"compile": True}, "model.compile()", 0.9, is_slow=True),
        Advised("attention", "attention", {}, "attend(q, k, v)", 0.8),
        Advised("threads", "2 threads", {"threads": 2}, "torch.set_num_threads(2)", 0.3, "threads"),
    ]
    monkeypatch.setattr("collector.server.list_changes", lambda run, rank: changes)
    folder = build_run(tmp_path / "run", RunPlan(steps=2, operators=False))
    found = [(each.label, each.change, each.code, each.place, each.most_frac) for each in list_candidates(folder)]
    assert found == [
        ("2 threads", {"threads": 2}, "torch.set_num_threads(2)", "threads", 0.3),
        ("compile", {"compile": True}, "model.compile()", "", 0.9),
    ]
    with pytest.raises(TrialFailed):
        list_candidates(tmp_path / "none")


def test_turns_are_compared_over_the_updates_that_both_have() -> None:
    base = Turn((100 * MS,) * 15 + (50 * MS,) * 15)
    assert compare_turns(Turn((50 * MS,) * 15), base) == pytest.approx(math.log(0.5))
    assert compare_turns(Turn((1e-9,)), base) >= -math.log(1000.01)
    report = {"steps_ns": [3, 4], "losses": [1.0], "is_over": False}
    assert read_turn(report) == Turn((3.0, 4.0), (1.0,))


def test_losses_say_nothing_where_unchanged_runs_differ() -> None:
    search = World(_half_if_good).search()
    search.run([_candidate("good")])
    search.bases[-1].turns[0] = Turn(search.bases[-1].turns[0].steps_ns, (7.0,))
    assert search.has_same_losses(search.tried[0]) is None
    assert "Losses differ between unchanged runs too." in list_results(search, {})


def test_bounds_stay_finite_where_nothing_repeats_itself() -> None:
    search = World(lambda change, count: 10.0 ** (count % 7) * MS).search()
    search.run([_candidate(name) for name in "abc"])
    assert all(-1000 <= bound <= 1 for entry in search.tried if entry.known for bound in search.bound_gain(entry))


def test_a_gain_whose_rounds_differ_too_much_is_not_printed_as_a_figure() -> None:
    world = World(lambda change, count: 100 * MS * ((1.4, 2.4)[count % 2] if "slow" in change else 1.0), 15)
    search = world.search()
    search.run([_candidate("slow"), _candidate("other")])
    (line,) = (line for line in list_results(search, {}) if line.startswith("  slow"))
    assert line.endswith("  not measured in 2 rounds: the rounds differ too much (busy host)")
    (entry,) = (entry for entry in describe(search)["tried"] if entry["changes"] == ["slow"])
    assert (entry["gain_frac"], entry["low_frac"], entry["rounds"]) == (None, None, 2)
    assert entry["failure"] in line


def test_a_gain_larger_than_the_setting_can_gain_counts_only_where_fresh_processes_agree() -> None:
    """`lucky` gains 60 % in its first process only, `large` in all; each governs 7 % by the recorded run."""
    starts: list[Change] = []

    def step(change: Change, count: int) -> float:
        gains = "large" in change or ("lucky" in change and starts.count(change) == 1)
        return 100 * MS * _noise(count) * (0.4 if gains else 1.0)

    world = World(step)
    starts = world.starts
    search = world.search()
    search.run([replace(_candidate(name), most_frac=0.07) for name in ("lucky", "large")])
    assert search.best is not None
    assert search.best.label == "large"
    (line,) = (line for line in list_results(search, {}) if line.startswith("  lucky"))
    assert "is more than the setting can gain, 7 % of the step (busy host)" in line
    assert "Try again on a quiet host." in list_results(search, {}), "the time was not over"
    assert describe(search)["tried"][0]["gain_frac"] is None


def test_what_was_disturbed_is_measured_again_while_there_is_time() -> None:
    """The first process of each change has rounds between a tenth and five times the usual time."""
    lot = random.Random(1)

    def step(change: Change, count: int) -> float:
        is_disturbed = bool(change) and world.starts.count(change) == 1
        return _half_if_good(change, count) * (lot.choice((0.1, 1, 5)) if is_disturbed else 1.0)

    world = World(step)
    search = world.search()
    search.run([_candidate("good"), _candidate("a"), _candidate("b")])
    assert all(len(entry.lives) > 1 for entry in search.tried)
    assert search.best is not None
    assert search.best.label == "good"
    world = World(step, most=40)
    search = world.search()
    search.run([_candidate("good"), _candidate("other")])
    assert list_results(search, {}).count("Try again on a quiet host and with a larger --budget.") == 1


class Ending(Process):
    """A script whose end comes right after its first turn."""

    def play(self, span: Span) -> Turn:
        return Turn((), is_over=True) if self.done else super().play(span)


def test_a_change_without_a_compared_turn_is_named_with_the_reason() -> None:
    notes: list[Any] = []
    world = World(_half_if_good)
    search = Search(
        lambda change: Ending(world, change), lambda label, found: notes.append(getattr(found, "step_ns", found))
    )
    search.run([_candidate("good")])
    assert notes == ["the script ends before it can be compared"]
    assert notes[0] in list_results(search, {})[1]


def test_what_takes_long_comes_last() -> None:
    world = World(lambda change, count: 100 * MS * _noise(count) * (0.5 if "quick" in change else 1.0))
    slow = Candidate("slow", "slow", {"slow": 1}, "slow()", is_slow=True)
    world.search().run([slow, _candidate("quick")])
    assert {"quick": 1} not in world.order[world.order.index({"slow": 1}) :]


CALLS = """loader = DataLoader(rows, batch_size=None, num_workers=8,
                    persistent_workers=True, pin_memory=False)
torch.set_num_threads(1)
opt = Adam(net.parameters())
other = DataLoader(rows, **options)
"""


def test_a_change_is_a_diff_of_the_users_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "train.py")
    Path(file).write_text(CALLS)
    places = {"DataLoader": [(file, 1, "DataLoader")], "threads": [(file, 3, "set_num_threads")]}
    left = dict.fromkeys(("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"))
    workers = Candidate("num_workers", "", {}, "DataLoader(…, num_workers=0)", "DataLoader", {"num_workers": 0, **left})
    threads = Candidate("threads", "", {}, "torch.set_num_threads(2)", "threads")
    assert list_edits([workers, threads], places) == [
        "  train.py:1",
        "  -loader = DataLoader(rows, batch_size=None, num_workers=8,",
        "  -                    persistent_workers=True, pin_memory=False)",
        "  -torch.set_num_threads(1)",
        "  +loader = DataLoader(rows, batch_size=None, num_workers=0, pin_memory=False)",
        "  +torch.set_num_threads(2)",
    ]
    fused = Candidate("update", "", {}, "", "optimizer", {"fused": True, "foreach": None})
    assert list_edits([fused], {"optimizer": [(file, 4, "Adam")]})[-1] == "  +opt = Adam(net.parameters(), fused=True)"
    unsure = {"DataLoader": [(file, 5, "DataLoader")]}
    assert list_edits([workers], unsure) == ["  DataLoader(…, num_workers=0)"]


@pytest.mark.parametrize("words", [["--budget", "5m", "t.py"], ["--try", "--budget", "soon", "t.py"], ["--try"]])
def test_a_wrong_command_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command(words)
    assert "stepscope run: error" in capsys.readouterr().err


def test_a_folder_with_earlier_trials_is_refused(tmp_path: Path) -> None:
    (tmp_path / RESULTS_FILE).write_text("{}")
    with pytest.raises(UsageError, match="earlier trials"):
        try_changes(Trying(Program("t.py", False, ()), 60.0, str(tmp_path)))
