"""When a silence of the training thread counts, and the one line on its terminal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.format.parts import build_table_from_rows
from collector.format.phases import PHASE_PLACES
from collector.format.schema.layout import events_path, rank_path
from collector.hangs.live import VARIABLE, describe_innermost, is_long_work, waits_for_ranks
from collector.notes import Notes, write_notes
from collector.ring.clock import Clock
from collector.sidecar import process
from collector.sidecar.assemblers.standstills import StandstillAssembler
from collector.sidecar.steps.rows import UNKNOWN, Moment
from collector.sidecar.terminal import describe_terminal, say_on_terminal
from tests.support.live import build_live_run, edit_rank
from tests.support.runs import RunPlan, build_steps

S = 10**9
FORWARD = PHASE_PLACES["forward"]
SLEEPS = "main (/home/me/train.py:88)\nfetch (/home/me/data.py:7)\nrecv (/usr/lib/python3.10/connection.py:250)"


class Thread:
    """A training thread as the other assemblers tell of it."""

    def __init__(self, folder: Path, *, finished: str = "") -> None:
        self.folder = rank_path(folder, 0)
        events_path(self.folder).mkdir(parents=True)
        clock = Clock.start()
        self.notes = Notes(0, os.getpid(), None, "here", 0, clock.epoch_unix_ns, clock.perf_ns, clock.unix_ns)
        self.notes.finished = finished
        write_notes(self.notes, self.folder)
        self.moment: Moment | None = None
        self.stack = SLEEPS
        self.looked_ns = 0
        self.watch = StandstillAssembler(self.folder, clock)
        others: Any = {"steps": self, "stacks": self}
        self.watch.listen(others)

    def read_moment(self) -> Moment | None:
        return self.moment

    def find_newest(self, since_ns: int) -> str:
        return self.stack

    def stand(self, for_s: float, step: int = 41, phase: int = FORWARD) -> dict[str, Any] | None:
        """Stand still for so long, and return what is told of it."""
        self.looked_ns = time.perf_counter_ns()
        since = self.looked_ns - int(for_s * S)
        self.moment = Moment(step, phase, UNKNOWN, False, since, (), None)
        self.watch.poll()
        facts = self.watch.describe().get("facts")
        return facts.get("standing") if facts else None

    def train(self, step_s: float) -> None:
        rows = [{**row, "duration_ns": int(step_s * S)} for row in build_steps(RunPlan(steps=30))]
        self.watch.watch("steps", build_table_from_rows("steps", rows))


def limit_s(told: dict[str, Any] | None) -> float:
    assert told is not None
    return float(told["limit_ns"]) / S


def test_half_a_minute_counts_where_steps_are_short(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    thread.train(0.1)
    assert thread.stand(9) is None
    told = thread.stand(40)
    assert limit_s(told) == 30
    assert told is not None
    assert told["for_ns"] >= 40 * S
    assert (told["step"], told["phase"]) == (42, "forward")
    assert told["stack"] == "recv (connection.py:250), called from fetch (data.py:7)"


@pytest.mark.parametrize(("step_s", "limit"), [(4.0, 80.0), (60.0, 300.0)])
def test_long_steps_may_be_silent_for_longer(tmp_path: Path, step_s: float, limit: float) -> None:
    thread = Thread(tmp_path)
    thread.train(step_s)
    assert limit_s(thread.stand(40)) == limit


def test_a_silence_that_the_run_got_over_doubles_the_limit(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    thread.train(0.1)
    thread.stand(100)
    thread.stand(0)
    assert limit_s(thread.stand(11)) == pytest.approx(200, abs=1)


def test_a_recorder_that_was_held_up_blames_nobody(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    thread.train(0.1)
    thread.looked_ns = time.perf_counter_ns() - 100 * S
    thread.moment = Moment(41, FORWARD, UNKNOWN, False, thread.looked_ns, (), None)
    thread.watch.poll()
    assert thread.watch.describe() == {}


def test_a_machine_that_stopped_everybody_blames_nobody(tmp_path: Path) -> None:
    """A job that was suspended with its recorder goes on: what passed meanwhile is no silence of the training."""
    thread = Thread(tmp_path)
    thread.train(0.1)
    thread.stand(0)
    thread.looked_ns += 3_600 * S
    thread.watch.poll()
    assert thread.watch.describe() == {}
    thread.looked_ns += 2 * S
    thread.watch.poll()
    assert thread.watch.describe() == {}


def test_before_the_second_step_five_minutes_count_and_teach_nothing(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    assert limit_s(thread.stand(100, step=0)) == 300
    thread.train(0.1)
    thread.stand(0, step=2)
    assert limit_s(thread.stand(11)) == 30


@pytest.mark.parametrize(("phase", "stack"), [(UNKNOWN, SLEEPS), (FORWARD, "save (/x/torch/serialization.py:9)")])
def test_what_may_be_long_work_is_given_ten_times_as_long_alone(tmp_path: Path, phase: int, stack: str) -> None:
    thread = Thread(tmp_path)
    thread.train(0.1)
    thread.stack = stack
    told = thread.stand(40, phase=phase)
    assert told is not None
    assert told["alone_limit_ns"] == 10 * told["limit_ns"]


def test_nothing_is_told_while_nothing_is_recorded_or_where_it_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = Thread(tmp_path / "a")
    thread.stand(100)
    thread.moment = None
    thread.watch.poll()
    assert thread.watch.describe() == {}
    assert Thread(tmp_path / "b", finished="complete").stand(100) is None
    monkeypatch.setenv(VARIABLE, "0")
    assert Thread(tmp_path / "c").stand(100) is None
    monkeypatch.setenv(VARIABLE, "soon")
    assert Thread(tmp_path / "d").stand(100) is not None


def test_a_training_that_got_on_and_ended_leaves_nothing(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    thread.stand(100)
    thread.notes.finished = "complete"
    write_notes(thread.notes, thread.folder)
    thread.watch.finish()
    assert thread.watch.describe() == {}


def join_job(folder: Path, **still: Any) -> Thread:
    """Return the thread of rank 0, which waits in a collective that rank 1 has not entered."""
    run = build_live_run(folder, ranks=2)
    told = {"for_ns": 40 * S, "limit_ns": 30 * S, "alone_limit_ns": 300 * S, "stack": "hold (train.py:7)", **still}
    for rank in (0, 1):
        moment = {"step": 42, "phase": "", "in_collective": rank == 0, "ended": 7, "next": {"name": "allreduce"}}
        edit_rank(run, rank, facts={"moment": moment, "standing": told}, heartbeat_unix_ns=time.time_ns())
    thread = Thread(run)
    thread.train(0.1)
    return thread


def stand_and_go_on(thread: Thread, for_s: float) -> list[dict[str, Any]]:
    thread.stand(for_s)
    thread.stand(0, step=60)
    found: list[dict[str, Any]] = thread.watch.describe().get("facts", {}).get("standstills", [])
    return found


def test_a_standstill_that_the_job_got_over_is_kept_with_its_place(tmp_path: Path) -> None:
    thread = join_job(tmp_path / "job")
    (kept,) = stand_and_go_on(thread, 90)
    assert kept["for_ns"] == pytest.approx(90 * S, abs=S)
    assert (kept["step"], kept["phase"], kept["missing"]) == (42, "forward", [1])
    assert kept["stack"] == "recv (connection.py:250), called from fetch (data.py:7)"
    thread.notes.finished = "complete"
    write_notes(thread.notes, thread.folder)
    thread.watch.finish()
    assert thread.watch.describe()["facts"] == {"standstills": [kept]}


def test_waiting_for_a_rank_that_computes_or_saves_is_no_standstill(tmp_path: Path) -> None:
    thread = join_job(tmp_path / "job", works=True)
    assert stand_and_go_on(thread, 90) == []


def test_a_silence_that_comes_again_and_again_is_no_standstill(tmp_path: Path) -> None:
    thread = join_job(tmp_path / "job")
    assert len(stand_and_go_on(thread, 90)) == 1
    assert len(stand_and_go_on(thread, 60)) == 2
    assert limit_s(thread.stand(11)) == 30
    assert stand_and_go_on(thread, 50) == []
    assert limit_s(thread.stand(11)) == pytest.approx(180, abs=1)


def test_long_regular_steps_are_no_standstill(tmp_path: Path) -> None:
    thread = join_job(tmp_path / "job")
    thread.train(40)
    assert stand_and_go_on(thread, 200) == []


def test_steps_alone_tell_how_long_a_silence_is_usual(tmp_path: Path) -> None:
    thread = join_job(tmp_path / "job")
    usual = limit_s(thread.stand(31))
    thread.watch.watch("stages", pa.table({"kind": ["train"] * 20, "duration_ns": [100 * S] * 20}))
    assert limit_s(thread.stand(31)) == usual
    thread.train(10)
    assert limit_s(thread.stand(31)) > usual


def test_a_stack_is_told_by_its_innermost_function_and_the_script_s() -> None:
    assert describe_innermost("") == ""
    assert describe_innermost("step (/home/me/train.py:3)") == "step (train.py:3)"
    assert describe_innermost("run (/usr/lib/python3.10/runpy.py:1)") == "run (runpy.py:1)"
    assert is_long_work("compile (/v/torch/_inductor/codecache.py:1)")
    assert not is_long_work(SLEEPS)


def test_a_stack_in_a_collective_that_is_called_as_an_operator_waits_for_ranks() -> None:
    operator = "OpOverloadPacket.__call__ (/v/torch/_ops.py:1279)"
    called = "wait_tensor (/v/torch/distributed/_functional_collectives.py:142)"
    assert waits_for_ranks(f"main (/home/me/train.py:3)\n{called}\n{operator}")
    assert not waits_for_ranks(f"main (/home/me/train.py:3)\n{operator}")
    assert not waits_for_ranks(f"forward (/v/torch/distributed/fsdp/api.py:3)\n{SLEEPS}")
    assert not waits_for_ranks("")


def write_to(target: int, text: str, known: bool = True) -> bool:
    """Have a line said on a file that a process has as its stderr."""
    found = os.fstat(target)
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, target, 2)])
    try:
        return say_on_terminal(child, [found.st_dev, found.st_ino] if known else [1, 2], text)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_the_line_reaches_a_pipe_and_a_file_and_breaks_no_terminal(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    assert write_to(writer, "stands still\n\x1b[2J")
    assert os.read(reader, 100) == b"stands still  [2J\n"
    with open(tmp_path / "log", "wb") as file:
        file.write(b"epoch 1\n")
        file.flush()
        assert write_to(file.fileno(), "stands still")
    assert (tmp_path / "log").read_bytes() == b"epoch 1\nstands still\n"
    os.close(reader)
    assert not write_to(writer, "nobody reads it")
    os.close(writer)


TRAINING = """
import os, subprocess, sys
from collector.sidecar.terminal import describe_terminal, lend_log_file
os.write(2, b"epoch 1\\n")
said = f"from collector.sidecar.terminal import say_on_terminal as say; say({os.getpid()}, {describe_terminal()}, 'stands still')"
with lend_log_file() as lent:
    print(len(lent), flush=True)
    subprocess.run([sys.executable, "-c", said], pass_fds=lent, stderr=subprocess.DEVNULL, check=True)
os.write(2, b"epoch 2\\n")
"""


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_what_the_training_prints_next_stands_after_the_line(tmp_path: Path, mode: str) -> None:
    with open(tmp_path / "job.log", mode) as log:
        subprocess.run([sys.executable, "-c", TRAINING], stderr=log, stdout=log, check=True)
    assert (tmp_path / "job.log").read_text() == "epoch 1\n1\nstands still\nepoch 2\n"


def test_the_sidecar_is_started_with_the_log_file_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given: list[tuple[int, int]] = []

    def start(command: list[str], *, pass_fds: tuple[int, ...], **others: Any) -> None:
        given.extend((found.st_dev, found.st_ino) for found in map(os.fstat, pass_fds))

    monkeypatch.setattr(subprocess, "Popen", start)
    events_path(tmp_path).mkdir(parents=True)
    process.start_sidecar(tmp_path)
    assert given == [tuple(describe_terminal())]  # what is printed to stderr is captured in a file


def test_a_pipe_is_not_held_open_by_another_process() -> None:
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "epoch 1\nstands still\nepoch 2\n")


def test_a_full_pipe_is_not_waited_for() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    assert not write_to(writer, "stands still")
    os.close(reader)
    os.close(writer)


def test_another_file_in_the_place_of_stderr_is_left_alone(tmp_path: Path) -> None:
    with open(tmp_path / "checkpoint", "wb") as file:
        assert not write_to(file.fileno(), "stands still", known=False)
    assert (tmp_path / "checkpoint").read_bytes() == b""
    assert not say_on_terminal(2**22 + 1, [1, 2], "nobody is there")
