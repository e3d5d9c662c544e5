"""The detailed window in real training, and beside a profiler of the user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import profiler as autograd_profiler

from collector import Profiler
from collector.format.run import Run
from collector.format.schema.layout import events_path
from collector.options import parse_options
from collector.ring.windows import find_windows, trace_file, write_window
from collector.session.recording import Recording
from tests.support.recording import Recorded, record

pytestmark = pytest.mark.usefixtures("one_thread")

MODEL = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.01)


def _train(steps: int = 12) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(steps * 8, 16))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
        OPTIMIZER.zero_grad()
        MODEL(batch).sum().backward()
        OPTIMIZER.step()


def _signal(recorded: Recorded) -> Any:
    return next(signal for signal in recorded.run.rank().manifest.signals if signal.name == "window")


def test_window_covers_the_chosen_steps(tmp_path: Path) -> None:
    recorded = record(tmp_path, _train, window=(5, 3))
    (window,) = recorded.run.rank().manifest.windows
    assert (window.first_step, window.last_step) == (5, 7)
    assert window.stall_ns > 0
    assert recorded.run.rank().manifest.overhead.window_stall_ns == window.stall_ns
    assert [row["step"] for row in recorded.train if row["detailed"]] == [5, 6, 7]


def test_operators_have_the_steps_shapes_and_counts_of_the_loop(tmp_path: Path) -> None:
    rows = record(tmp_path, _train, window=(5, 3)).run.table("operators").to_pylist()
    linear = [row for row in rows if row["name"] == "aten::linear"]
    counts = {step: sum(row["count"] for row in linear if row["step"] == step) for step in (5, 6, 7)}
    assert counts == {5: 2, 6: 2, 7: 2}
    assert {row["input_shapes"] for row in linear} == {"[[8,16],[16,16],[16]]", "[[8,16],[4,16],[4]]"}
    assert {row["type"] for row in linear} == {"matmul"}


def test_slices_lie_inside_their_steps_on_the_clock_of_the_run(tmp_path: Path) -> None:
    recorded = record(tmp_path, _train, window=(5, 3))
    steps = {row["step"]: row for row in recorded.train}
    slices = [row for row in recorded.run.table("slices").to_pylist() if row["name"].startswith("aten::")]
    assert {row["step"] for row in slices} == {5, 6, 7}
    slack_ns = 50_000
    for row in slices:
        step = steps[row["step"]]
        assert row["start_ns"] >= step["start_ns"] - slack_ns
        assert row["start_ns"] + row["duration_ns"] <= step["start_ns"] + step["duration_ns"] + slack_ns


def test_window_may_start_with_the_first_step(tmp_path: Path) -> None:
    (window,) = record(tmp_path, _train, window=(1, 2)).run.rank().manifest.windows
    assert (window.first_step, window.last_step) == (1, 2)


def test_pause_ends_the_window(tmp_path: Path) -> None:
    recording = Recording(tmp_path, parse_options({"window": (3, 100)}), with_sidecar=False)
    assert not torch.autograd._profiler_enabled()
    recording.resume()
    _train(5)
    recording.pause()
    assert not torch.autograd._profiler_enabled()
    torch.ones(3).cosh()
    recording.resume()
    _train(3)
    recording.finish()
    names = set(Run(tmp_path).table("operators")["name"].to_pylist())
    assert "aten::linear" in names
    assert "aten::cosh" not in names


def test_window_of_the_first_step_waits_for_the_start(tmp_path: Path) -> None:
    recording = Recording(tmp_path, parse_options({"window": (1, 2)}), with_sidecar=False)
    assert not torch.autograd._profiler_enabled()
    recording.resume()
    assert torch.autograd._profiler_enabled()
    recording.finish()
    assert not torch.autograd._profiler_enabled()


def test_training_that_ends_inside_the_window_still_has_it(tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: _train(6), window=(5, 100))
    (window,) = recorded.run.rank().manifest.windows
    assert window.first_step == 5
    assert recorded.run.table("operators").num_rows > 0


def test_no_window_leaves_nothing(tmp_path: Path) -> None:
    before = vars(autograd_profiler)["_prepare_profiler"]
    recorded = record(tmp_path, _train, window=None)
    assert recorded.run.rank().manifest.windows == ()
    assert find_windows(events_path(recorded.run.rank().folder)) == ()
    assert vars(autograd_profiler)["_prepare_profiler"] is before


def test_profiler_of_the_user_is_not_disturbed(tmp_path: Path) -> None:
    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    def loop() -> None:
        with own:
            _train()

    recorded = record(tmp_path, loop, window=(5, 3))
    assert sum(event.count for event in own.key_averages() if event.key == "aten::linear") == 24
    assert recorded.run.rank().manifest.windows == ()
    assert _signal(recorded).state == "unavailable"
    assert "Another profiler" in _signal(recorded).reason


def test_warm_up_of_the_users_profiler_counts_as_a_session(tmp_path: Path) -> None:
    seen: list[int] = []

    def read(profiler: torch.profiler.profile) -> None:
        seen.append(sum(event.count for event in profiler.key_averages() if event.key == "aten::linear"))

    schedule = torch.profiler.schedule(wait=1, warmup=6, active=3, repeat=1)

    def loop() -> None:
        data = torch.utils.data.TensorDataset(torch.randn(96, 16))
        with torch.profiler.profile(schedule=schedule, on_trace_ready=read, acc_events=True) as own:
            for (batch,) in torch.utils.data.DataLoader(data, batch_size=8):
                OPTIMIZER.zero_grad()
                MODEL(batch).sum().backward()
                OPTIMIZER.step()
                own.step()

    recorded = record(tmp_path, loop, window=(5, 3))
    assert seen == [6]
    assert all(window.first_step > 10 for window in recorded.run.rank().manifest.windows)


def test_session_that_starts_inside_the_window_ends_it(tmp_path: Path) -> None:
    counts: list[int] = []

    def loop() -> None:
        _train(6)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            _train(3)
        counts.append(sum(event.count for event in own.key_averages() if event.key == "aten::linear"))

    recorded = record(tmp_path, loop, window=(4, 100))
    assert counts == [6]
    (window,) = recorded.run.rank().manifest.windows
    assert window.first_step == 4
    assert any(warning.code == "window_cut_short" for warning in recorded.run.rank().manifest.warnings)


def test_undo_leaves_torch_as_it_was(tmp_path: Path) -> None:
    names = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    before = [vars(autograd_profiler)[name] for name in names]
    record(tmp_path, _train, window=(5, 3))
    assert all(vars(autograd_profiler)[name] is old for name, old in zip(names, before, strict=True))
    assert not torch.autograd._profiler_enabled()


def test_device_activity_alone_is_no_error_without_a_device(tmp_path: Path) -> None:
    recorded = record(tmp_path, _train, window=(5, 2), activities=("device",))
    assert len(recorded.train) == 12


def test_damaged_window_takes_no_other_table_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(events: Path, note: Any) -> None:
        trace_file(events, note.first_step).write_text("{", encoding="utf-8")
        write_window(events, note)

    monkeypatch.setattr("collector.signals.window.write_window", spoil)
    recorded = record(tmp_path, _train, window=(5, 3))
    assert len(recorded.train) == 12
    assert _signal(recorded).state == "failed"
    assert recorded.run.rank().status("operators").state == "failed"


def test_trace_is_kept_as_kineto_wrote_it_where_that_is_asked_for(tmp_path: Path) -> None:
    recorded = record(tmp_path, _train, window=(5, 3), keep_events=True)
    (window,) = recorded.run.rank().manifest.windows
    assert window.trace_file is not None
    raw = json.loads((recorded.run.rank().folder / window.trace_file).read_text(encoding="utf-8"))
    events = [event for event in raw["traceEvents"] if event["ph"] in "Xi" and event["name"] != "[memory]"]
    # Kineto's marks of its own session are counted, but no slices.
    own = {event["name"] for event in events if isinstance(event["pid"], str)} | {"Record Window End"}
    own |= {event["name"] for event in events if event["name"].startswith("Iteration Start")}
    assert len(own) <= 4
    assert set(recorded.run.table("slices")["name"].to_pylist()) == {event["name"] for event in events} - own


def test_a_window_without_memory_leaves_pytorchs_note_on_older_blocks_away(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded = record(tmp_path, _train, window=(3, 2), memory=False)
    assert len(recorded.run.rank().manifest.windows) == 1
    assert "Memory block of unknown size" not in capfd.readouterr().err


def test_a_disk_with_fixed_modes_costs_no_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr("collector.signals.window.restrict", refuse)
    assert len(record(tmp_path, _train, window=(3, 2)).run.rank().manifest.windows) == 1


def test_a_run_that_only_infers_is_told_how_to_have_a_window(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler(tmp_path / "run", window=(3, 2))
    with torch.inference_mode():
        for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 16)), batch_size=8):
            MODEL(batch)
    run = profiler.analyse()
    assert "stepscope: 5 batches recorded in " in capfd.readouterr().err
    reason = next(signal.reason for signal in run.rank().manifest.signals if signal.name == "window")
    assert "call step() of the Profiler after each batch" in reason
