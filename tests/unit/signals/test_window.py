"""The detailed window in real trainings: by the option, by order, and beside a profiler of the user's own."""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import profiler as autograd_profiler

from collector.context.quiet import leave_out_lines
from collector.format.run import Run
from collector.format.schema.layout import events_path, rank_path
from collector.notes import WORDS_FILE
from collector.options import parse_options
from collector.ring.windows import Order, find_windows, send_order, trace_file, write_window
from collector.session.recording import Recording
from collector.signals import window as module
from tests.support import forking, shapes
from tests.support.recording import Recorded, record

MODEL = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.01)
CPU = [torch.profiler.ProfilerActivity.CPU]


def train(steps: int = 8, at_step: Callable[[int], object] = lambda number: None) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(steps * 8, 16))
    for number, (batch,) in enumerate(torch.utils.data.DataLoader(data, batch_size=8), 1):
        at_step(number)
        OPTIMIZER.zero_grad()
        MODEL(batch).sum().backward()
        OPTIMIZER.step()


def list_windows(run: Run) -> list[tuple[int, int, str]]:
    return [(window.first_step, window.last_step, window.trigger) for window in run.rank().manifest.windows]


def find_signal(run: Run) -> Any:
    return next(signal for signal in run.rank().manifest.signals if signal.name == "window")


def count_linear(profiler: torch.profiler.profile) -> int:
    return sum(event.count for event in profiler.key_averages() if event.key == "aten::linear")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A training with a window over steps 5 to 7, whose trace is kept."""
    return record(tmp_path_factory.mktemp("window"), train, window=(5, 3), keep_events=True)


def test_window_covers_the_chosen_steps(recorded: Recorded) -> None:
    manifest = recorded.run.rank().manifest
    assert list_windows(recorded.run) == [(5, 7, "option")]
    assert manifest.overhead.window_stall_ns == manifest.windows[0].stall_ns > 0
    assert [row["step"] for row in recorded.train if row["detailed"]] == [5, 6, 7]


def test_operators_have_the_steps_shapes_and_counts_of_the_loop(recorded: Recorded) -> None:
    linear = [row for row in recorded.run.table("operators").to_pylist() if row["name"] == "aten::linear"]
    counts = {step: sum(row["count"] for row in linear if row["step"] == step) for step in (5, 6, 7)}
    assert counts == {5: 2, 6: 2, 7: 2}
    assert {row["input_shapes"] for row in linear} == {"[[8,16],[16,16],[16]]", "[[8,16],[4,16],[4]]"}
    assert {row["type"] for row in linear} == {"matmul"}


def test_slices_lie_inside_their_steps_on_the_clock_of_the_run(recorded: Recorded) -> None:
    steps = {row["step"]: row for row in recorded.train}
    slices = [row for row in recorded.run.table("slices").to_pylist() if row["name"].startswith("aten::")]
    assert {row["step"] for row in slices} == {5, 6, 7}
    slack_ns = 50_000
    for row in slices:
        step = steps[row["step"]]
        assert row["start_ns"] >= step["start_ns"] - slack_ns
        assert row["start_ns"] + row["duration_ns"] <= step["start_ns"] + step["duration_ns"] + slack_ns


def test_trace_is_kept_as_kineto_wrote_it_where_that_is_asked_for(recorded: Recorded) -> None:
    (window,) = recorded.run.rank().manifest.windows
    assert window.trace_file is not None
    raw = json.loads((recorded.run.rank().folder / window.trace_file).read_text(encoding="utf-8"))
    events = [event for event in raw["traceEvents"] if event["ph"] in "Xi" and event["name"] != "[memory]"]
    # Kineto's marks of its own session are counted, but no slices.
    own = {event["name"] for event in events if isinstance(event["pid"], str)} | {"Record Window End"}
    own |= {event["name"] for event in events if event["name"].startswith("Iteration Start")}
    assert len(own) <= 4
    assert set(recorded.run.table("slices")["name"].to_pylist()) == {event["name"] for event in events} - own


def test_windows_that_are_ordered_are_taken_one_after_the_other(tmp_path: Path) -> None:
    orders = {
        3: Order(8, 1),  # while one is open: it does not change
        10: Order(1, 2),  # a step that has passed means the next one
        14: Order(100, 2),  # still waits when the next one replaces it
        15: Order(17, 1, "outlier"),
    }

    def order(number: int) -> None:
        if number in orders:
            send_order(events_path(rank_path(tmp_path, 0)) / WORDS_FILE, orders[number])

    run = record(tmp_path, lambda: train(19, order), window=(2, 2)).run
    assert list_windows(run) == [(2, 3, "option"), (8, 8, "control"), (11, 12, "control"), (17, 17, "outlier")]
    detailed = [row["step"] for row in run.table("steps").to_pylist() if row["detailed"] and row["kind"] == "train"]
    assert detailed == [2, 3, 8, 11, 12, 17]


@pytest.mark.parametrize(
    ("window", "costly_ns", "last"),
    [("auto", 20_000_000, 10), ("auto", 10**12, 12), ((9, 3), 20_000_000, 11)],
    ids=["many operators", "few", "asked for"],
)
def test_a_window_that_nobody_asked_for_ends_after_a_step_that_it_makes_much_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: Any, costly_ns: int, last: int
) -> None:
    monkeypatch.setattr(module, "COSTLY_NS", costly_ns)
    numbers = torch.zeros(8)

    def call_operators(step: int) -> None:
        for place in range(12_000 if step > 9 else 0):
            numbers[place % 8] = 1.0

    run = record(tmp_path, lambda: train(14, call_operators), window=window).run
    ((_, found, _),) = list_windows(run)
    assert found == last


LIVE = """
import itertools, sys, time, torch
from pathlib import Path
import collector
from collector import Profiler
from collector.format.schema.control import WindowRequest, write_control
torch.set_num_threads(1)
profiler = Profiler(sys.argv[1], window=(2, 1), triggers=False)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began_s = time.monotonic()
for step in itertools.count(1):
    if step == 20:
        write_control(Path(sys.argv[1]), WindowRequest(0, 2))
    optimizer.zero_grad()
    model(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    windows = len(list(Path(sys.argv[1]).glob("profiler/rank_0/events/window-*.note.json")))
    if windows > 1 or time.monotonic() > began_s + 90:
        break
profiler.analyse()
"""


def test_the_file_of_a_running_job_re_targets_its_window(tmp_path: Path) -> None:
    done = forking.run([sys.executable, "-c", LIVE, tmp_path])
    assert done.returncode == 0, done.stderr
    assert "USDT" not in done.stderr
    (option, asked) = Run(tmp_path).rank().manifest.windows
    assert (option.first_step, asked.trigger) == (2, "control")
    assert asked.first_step >= 20
    assert asked.last_step - asked.first_step == 1


def test_pause_ends_the_window(tmp_path: Path) -> None:
    recording = Recording(tmp_path, parse_options({"window": (1, 100)}), with_sidecar=False)
    assert not torch.autograd._profiler_enabled()
    recording.resume()
    assert torch.autograd._profiler_enabled()  # the first step is in it from its start on
    train(3)
    recording.pause()
    assert not torch.autograd._profiler_enabled()
    torch.ones(3).cosh()
    recording.resume()
    train(2)
    recording.finish()
    names = set(Run(tmp_path).table("operators")["name"].to_pylist())
    assert "aten::linear" in names
    assert "aten::cosh" not in names


def test_no_window_leaves_nothing_and_one_leaves_torch_as_it_was(tmp_path: Path) -> None:
    names = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    before = [vars(autograd_profiler)[name] for name in names]
    rank = record(tmp_path / "none", train, window=None).run.rank()
    assert rank.manifest.windows == ()
    assert find_windows(events_path(rank.folder)) == ()
    record(tmp_path / "one", train, window=(2, 1))
    assert all(vars(autograd_profiler)[name] is old for name, old in zip(names, before, strict=True))
    assert not torch.autograd._profiler_enabled()


def test_profiler_of_the_user_is_not_disturbed(tmp_path: Path) -> None:
    own = torch.profiler.profile(activities=CPU)

    def loop() -> None:
        with own:
            train()

    run = record(tmp_path, loop, window=(5, 3)).run
    assert count_linear(own) == 16
    assert list_windows(run) == []
    assert find_signal(run).state == "unavailable"
    assert "Another profiler" in find_signal(run).reason


def test_a_window_is_taken_once_the_other_profiler_has_ended(tmp_path: Path) -> None:
    def loop() -> None:
        with torch.profiler.profile(activities=CPU):
            train(6)
        train(6)

    run = record(tmp_path, loop, window=(3, 2)).run
    ((first, *_),) = list_windows(run)
    assert 7 <= first <= 8
    assert find_signal(run).state == "on"


def test_warm_up_of_the_users_profiler_counts_as_a_session(tmp_path: Path) -> None:
    seen: list[int] = []
    schedule = torch.profiler.schedule(wait=1, warmup=6, active=3, repeat=1)

    def loop() -> None:
        own = torch.profiler.profile(
            schedule=schedule, on_trace_ready=lambda profiler: seen.append(count_linear(profiler)), acc_events=True
        )
        with own:
            train(12, lambda number: own.step() if number > 1 else None)

    run = record(tmp_path, loop, window=(5, 3)).run
    assert seen == [6]
    assert all(first > 10 for first, *_ in list_windows(run))


def test_session_that_starts_inside_the_window_ends_it(tmp_path: Path) -> None:
    counts: list[int] = []

    def loop() -> None:
        train(4)
        with torch.profiler.profile(activities=CPU) as own:
            train(3)
        counts.append(count_linear(own))

    run = record(tmp_path, loop, window=(3, 100)).run
    assert counts == [6]
    assert [first for first, *_ in list_windows(run)] == [3]
    assert any(warning.code == "window_cut_short" for warning in run.rank().manifest.warnings)


def test_a_device_that_is_missing_is_said_and_no_error(tmp_path: Path) -> None:
    recorded = record(tmp_path, train, window=(3, 1), activities=("device",))
    wanted = torch.accelerator.is_available()
    assert any(warning.code == "no_device" for warning in recorded.run.rank().manifest.warnings) is not wanted
    assert len(recorded.train) == 8


def test_damaged_window_takes_no_other_table_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(events: Path, note: Any) -> None:
        trace_file(events, note.first_step).write_text("{", encoding="utf-8")
        write_window(events, note)

    monkeypatch.setattr(module, "write_window", spoil)
    recorded = record(tmp_path, train, window=(5, 3))
    assert len(recorded.train) == 8
    assert find_signal(recorded.run).state == "failed"
    assert recorded.run.rank().status("operators").state == "failed"


def test_a_disk_with_fixed_modes_costs_no_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(module, "restrict", refuse)
    assert len(list_windows(record(tmp_path, train, window=(3, 2)).run)) == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise brings the frames back")
def test_ctrl_c_while_a_window_is_saved_shows_no_frame_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def loop() -> None:
        monkeypatch.setattr(module._Window, "save", interrupt)
        try:
            shapes.plain()
        except KeyboardInterrupt as error:
            seen.append([Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)])

    record(tmp_path, loop, window=(2, 1))
    assert seen == [[Path(__file__).name, "__init__.py", "__init__.py"]]
    gc.collect()  # the session ends with its signal
    assert not torch.autograd._profiler_enabled()


OF_A_THREAD = """
import sys, threading, torch
from collector import Profiler

torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
done = threading.Event()

def train(steps):
    for batch in torch.utils.data.DataLoader([torch.ones(8)] * 4 * steps, batch_size=4):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

def train_and_stay():
    train(8)
    trained.set()
    while sys.argv[1] == "goes on" and not done.is_set():
        train(1)
    done.wait()

profiler = Profiler("run", window=(4, 50))
trained = threading.Event()
if sys.argv[1] == "ends":
    first = threading.Thread(target=train, args=(12,))
    first.start()
    first.join()
    profiler.analyse()
else:
    first = threading.Thread(target=train_and_stay)
    first.start()
    trained.wait()
    profiler.analyse()
    done.set()
    first.join()
"""


@pytest.mark.parametrize(
    ("case", "windows", "state"),
    [
        ("ends", [(4, 12)], "on"),
        ("goes on", [(4, 8)], "on"),
        ("stays", [], "failed"),  # another thread closes it: it ends with its own
    ],
)
def test_a_window_of_a_thread_is_saved_on_it(
    tmp_path: Path, case: str, windows: list[tuple[int, int]], state: str
) -> None:
    command = [sys.executable, "-c", OF_A_THREAD, case]
    done = forking.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("stepscope:")] == []
    run = Run(tmp_path / "run")
    assert [(first, min(last, windows[0][1])) for first, last, _ in list_windows(run)] == windows
    assert find_signal(run).state == state


MEMORY = """
import sys, torch
from collector import Profiler

torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held = [torch.ones(8) for _ in range(40)]
with Profiler(sys.argv[1], window=(3, 3)):
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        del held[:2]
sys.stderr.write("mine\\n")
"""


def test_a_window_prints_no_line_about_memory_that_is_older_and_keeps_the_users(tmp_path: Path) -> None:
    done = forking.run([sys.executable, "-c", MEMORY, tmp_path])
    assert "unknown size" not in done.stderr
    assert "mine" in done.stderr
    assert (tmp_path / "profiler/rank_0/memory.parquet").exists()


def test_only_known_lines_are_left_out_of_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with leave_out_lines(b"of unknown size"):
        os.write(2, b"before\n[W] a block of unknown size was freed\nafter, without an end")
    os.write(2, b"!\n")
    assert capfd.readouterr().err == "before\nafter, without an end!\n"
    with pytest.raises(ValueError, match="ours"), leave_out_lines(b"x"):
        raise ValueError("ours")
    os.write(2, b"x is written\n")
    assert capfd.readouterr().err == "x is written\n"


def test_a_closed_stderr_is_no_error() -> None:
    code = "import os; os.close(2)\nfrom collector.context.quiet import leave_out_lines\n"
    code += "with leave_out_lines(b'x'):\n    print('inside')"
    assert forking.run([sys.executable, "-c", code]).stdout == "inside\n"
