"""What a stack says, and the thread that reads stacks: it keeps to its share, outlives those that it reads, and ends when told."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

import collector
from collector.format.schema.layout import events_path
from collector.frames.offers import Family, Offers, _read_origin
from collector.frames.posting import AGAINST, BESIDE, TRAINER, post_thread
from collector.frames.reading import Code, StackReader
from collector.ring.windows import NO_WINDOW, WINDOW_NEAR, WINDOW_OPEN, WindowState
from collector.ring.words import WINDOW_SLOT, WordLog
from collector.sidecar import stack_sampling
from collector.sidecar.assemblers.stacks import StacksAssembler
from collector.sidecar.source_lines import SourceLines, list_own_places
from collector.sidecar.stack_sampling import NOT_THEIRS, OTHER, Frame, StackBook, StackSampler, describe_stack
from tests.support.waiting import wait_for
from tests.unit.sidecar.test_steady import CLOCK, Assembly

_OURS = str(Path(collector.__file__).parent)
_TORCH = "/usr/lib/python3/dist-packages/torch/utils/data/_utils/fetch.py"
MAIN = Frame("main", "/home/me/train.py", 12)
READ = Frame("Photos.__getitem__", "/home/me/data.py", 31)


def _fetch(tmp_path: Path, line: int) -> Frame:
    path = tmp_path / "torch/utils/data/_utils/fetch.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("data = [self.dataset[i] for i in index]\nreturn self.collate_fn(data)\n")
    return Frame("_MapDatasetFetcher.fetch", str(path), line)


class Known:
    """Stands in for a reader: every address is a function of a script."""

    def describe(self, address: int) -> Code | None:
        return Code(f"f{address}", "/home/me/train.py", address, (0,), (address,)) if address else None


class Ours:
    def describe(self, address: int) -> Code | None:
        return Code("timed", f"{_OURS}/workers/tally.py", 1, (0,), (1,))


def test_frames_of_ours_and_of_the_import_system_are_left_out() -> None:
    frames = [Frame("run", "<frozen runpy>", 1), Frame("script", f"{_OURS}/launch/script.py", 9), MAIN]
    assert describe_stack(frames).text == "main (/home/me/train.py:12)"


def test_a_stage_begins_where_the_fetcher_calls(tmp_path: Path) -> None:
    reading = describe_stack([MAIN, _fetch(tmp_path, 1), READ])
    assert (reading.stage, reading.entry) == ("fetch", 2)
    collating = describe_stack([MAIN, _fetch(tmp_path, 2), Frame("gather", "/home/me/data.py", 40)])
    assert (collating.stage, collating.entry) == ("collate", 2)


def test_where_samples_are_timed_reading_and_transforms_are_told_apart(tmp_path: Path) -> None:
    timed = [MAIN, _fetch(tmp_path, 1), Frame("_TimedItems.__getitem__", f"{_OURS}/workers/fetching.py", 9), READ]
    assert describe_stack(timed)[1:3] == ("read", 2)
    transform = [*timed, Frame("timed", f"{_OURS}/workers/tally.py", 9), Frame("Resize.__call__", "/lib/tv.py", 3)]
    found = describe_stack(transform)
    assert found[1:3] == ("transform", 3)
    assert found.text.splitlines()[found.entry] == "Resize.__call__ (/lib/tv.py:3)"


def test_a_very_deep_stack_keeps_its_ends() -> None:
    lines = describe_stack([Frame(f"f{depth}", "/home/me/train.py", 1) for depth in range(500)]).text.splitlines()
    assert len(lines) < 70
    assert (lines[0], lines[-1]) == ("f0 (/home/me/train.py:1)", "f499 (/home/me/train.py:1)")


def test_hostile_names_stay_on_one_line_and_are_cut() -> None:
    class Hostile:
        def describe(self, address: int) -> Code | None:
            return Code("a\nb\x1b[31m" + "x" * 100_000, "/tmp/\u2028/" + "y" * 100_000, 1, (), ())

    book = StackBook()
    text = book[book.number(Hostile(), [(1, 0)])].text  # type: ignore[arg-type]
    assert len(text) < 600
    assert text.isprintable()


def test_a_stack_in_a_clock_of_ours_is_none_of_theirs() -> None:
    assert StackBook().number(Ours(), [(1, 0)]) == NOT_THEIRS  # type: ignore[arg-type]


def test_the_same_stack_has_the_same_number_and_too_many_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_sampling, "MOST_STACKS", 3)
    book, reader = StackBook(), Known()
    numbers = [book.number(reader, [(leaf, 0), (9, 0), (0, 0)]) for leaf in (1, 2, 1, 3, 4, 5)]  # type: ignore[arg-type]
    assert numbers == [1, 2, 1, 3, 0, 0]
    assert book[0].text == OTHER
    assert book[1].text == "f9 (/home/me/train.py:9)\nf1 (/home/me/train.py:1)"


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux only")
_WORKER = """
import os, sys
from pathlib import Path
from collector.format.schema.layout import events_path
from collector.frames.offers import Family
from collector.frames.offers import Offers
from collector.frames.posting import post_thread
post_thread(Path(sys.argv[1]), 0, 0, os.getppid())
print(flush=True)
sys.stdin.read()
"""


def _offers(folder: Path) -> Offers:
    return Offers(folder, Family(os.getpid()))


@on_linux
def test_the_training_thread_and_workers_are_read_until_they_end(tmp_path: Path) -> None:
    sampler = StackSampler(_offers(tmp_path), StackBook(), 64.0)
    sampler.start()
    post_thread(tmp_path, TRAINER, -1, os.getpid())
    arguments = [sys.executable, "-c", _WORKER, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        wait_for(lambda: any(sample.replica == 0 for sample in sampler.take()))
        worker.kill()
    sampler.take()
    wait_for(lambda: any(sample.replica == TRAINER for sample in sampler.take()))
    sampler.stop()
    assert sampler.problem == ""
    assert all(sample.replica == TRAINER for sample in sampler.take())


_BEGIN = [Frame("Thread._bootstrap", threading.__file__, 1000), Frame("Thread.run", threading.__file__, 980)]


@pytest.mark.parametrize(
    ("frames", "begins", "waits", "is_ours"),
    [
        ([MAIN, Frame("Queue.get", queue.__file__, 171)], 0, True, False),
        (
            [MAIN, Frame("_try_get_data", "/torch/utils/data/dataloader.py", 1), Frame("get", queue.__file__, 1)],
            0,
            False,
            False,
        ),
        ([*_BEGIN, READ], 2, False, False),
        ([*_BEGIN, Frame("watch", f"{_OURS}/hangs/live.py", 9), Frame("sleep", "/home/me/x.py", 1)], 2, False, True),
        (_BEGIN, 0, True, False),
    ],
)
def test_of_a_thread_it_is_known_whether_it_waits_for_another_and_who_began_it(
    frames: list[Frame], begins: int, waits: bool, is_ours: bool
) -> None:
    assert describe_stack(frames)[3:] == (begins, waits, is_ours)


_FED = """
import os, queue, sys, threading, time
from pathlib import Path
from collector.frames.posting import TRAINER, post_thread

def feed(batches):
    while True:
        sum(range(20_000))

batches = queue.Queue(1)
threading.Thread(target=feed, args=(batches,), daemon=True).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
post_thread(Path(sys.argv[1]), TRAINER, -1, os.getppid())
print(flush=True)
if sys.argv[2] == "waits":
    batches.get(timeout=60)
time.sleep(60)
"""


@on_linux
@pytest.mark.skipif(sys.version_info < (3, 11), reason="threads do not hold the system's number")
@pytest.mark.parametrize(("training", "replica"), [("waits", BESIDE), ("sleeps", AGAINST)])
def test_a_thread_that_computes_while_the_training_stands_still_is_sampled(
    tmp_path: Path, training: str, replica: int
) -> None:
    script = tmp_path / "fed.py"
    script.write_text(_FED)
    with subprocess.Popen([sys.executable, script, tmp_path, training], stdout=subprocess.PIPE) as fed:
        assert fed.stdout is not None
        fed.stdout.readline()
        sampler = StackSampler(Offers(tmp_path, _Parent(fed.pid)), book := StackBook(), 64.0)
        sampler.start()
        found = wait_for(lambda: [sample for sample in sampler.take() if sample.replica == replica])
        fed.kill()
    sampler.stop()
    stack = book[found[0].stack]
    assert [line.split(" (")[0] for line in stack.text.splitlines()[stack.begins :]] == ["feed"]
    assert sampler.problem == ""


@on_linux
@pytest.mark.skipif(sys.version_info < (3, 11), reason="threads do not hold the system's number")
def test_a_thread_that_ends_before_its_stack_is_read_ends_no_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = StackReader.read

    def read_own(reader: StackReader, thread: int = 0) -> object:
        asked.append(thread)
        if thread:
            raise OSError("there is no such thread")
        return read(reader)

    monkeypatch.setattr(StackReader, "read", read_own)
    script = tmp_path / "fed.py"
    script.write_text(_FED)
    with subprocess.Popen([sys.executable, script, tmp_path, "waits"], stdout=subprocess.PIPE) as fed:
        assert fed.stdout is not None
        fed.stdout.readline()
        sampler = StackSampler(Offers(tmp_path, _Parent(fed.pid)), StackBook(), 64.0)
        sampler.start()
        wait_for(lambda: sum(map(bool, asked)) > 2)
        sampler.take()
        wait_for(lambda: [sample for sample in sampler.take() if sample.replica == TRAINER])
        fed.kill()
    sampler.stop()
    assert sampler.problem == ""


class _Parent(Family):
    """A training that this process has started: usually the training starts the process that reads."""

    def __init__(self, pid: int) -> None:
        super().__init__(os.getpid())
        self.pid = pid
        self._started = _read_origin(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)).started


@on_linux
def test_samples_that_nobody_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_sampling, "MOST_SAMPLES", 3)
    monkeypatch.setattr(StackBook, "number", lambda *_: 0)
    sampler = StackSampler(_offers(tmp_path), StackBook(), 64.0)
    post_thread(tmp_path, TRAINER, -1, os.getpid())
    sampler._look()
    for _ in range(10):
        sampler._sample_all()
    assert len(sampler.take()) == 3


@on_linux
def test_reading_that_costs_more_than_its_share_waits(tmp_path: Path) -> None:
    sampler = StackSampler(_offers(tmp_path), StackBook(), 2.0)
    usual = [sampler._choose_wait(100.0, time.thread_time()) for _ in range(200)]
    assert len(set(usual)) > 100
    assert max(usual) <= 1.5 / stack_sampling.RATE_PER_S
    for _ in range(50):
        sampler._note_lateness(0.05)  # there is no processor to be had
    assert 0.04 < sampler._choose_wait(100.0, time.thread_time()) < 0.2
    # A second of a processor in a hundred seconds is the whole share of two processors, two seconds are too many.
    assert sampler._choose_wait(100.0, time.thread_time() - 2.0) == 1.0


@on_linux
def test_a_system_that_forbids_reading_is_named_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int, **rest: int) -> int:
        if path == "mem":
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, **rest)

    opened = os.open
    assembly = Assembly(tmp_path)
    assembler = StacksAssembler(tmp_path, CLOCK)
    post_thread(events_path(tmp_path), TRAINER, -1, os.getpid())
    assembler.follow(os.getpid())
    assert assembler._sampler is not None
    assert assembler.describe() == {}
    monkeypatch.setattr(os, "open", refuse)
    assembler._sampler._look()
    monkeypatch.undo()
    assembly.log.close()
    ((signal,),) = assembler.describe().values()
    assert (signal["name"], signal["state"]) == ("stacks", "unavailable")
    assert "ptrace_scope" in signal["reason"]


@on_linux
def test_a_training_that_the_system_does_not_show_is_named_in_the_run(tmp_path: Path) -> None:
    assembly = Assembly(tmp_path)
    assembly.log.close()
    assembler = StacksAssembler(tmp_path, CLOCK)
    assert assembler.describe() == {}
    assembler.follow(1 << 22)
    assert assembler.finish() == {}
    ((signal,),) = assembler.describe().values()
    assert (signal["name"], signal["state"]) == ("stacks", "unavailable")
    assert "cannot be looked at" in signal["reason"]


@on_linux
def test_an_open_window_is_sampled_every_millisecond_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_sampling, "MOST_DENSE", 30)
    monkeypatch.setattr(StackBook, "number", lambda *_: 0)
    states = [WINDOW_NEAR]
    sampler = StackSampler(_offers(tmp_path), StackBook(), 64.0, lambda: states[-1])
    post_thread(tmp_path, TRAINER, -1, os.getpid())
    sampler.start()
    time.sleep(0.3)
    states.append(WINDOW_OPEN)
    deadline = time.monotonic() + 60.0
    dense: list[int] = []
    while len(dense) < 30 and time.monotonic() < deadline:
        dense += [sample.at_ns for sample in sampler.take() if sample.is_dense]
        time.sleep(0.02)
    time.sleep(0.2)
    assert [sample for sample in sampler.take() if sample.is_dense] == []
    states.append(NO_WINDOW)
    sampler.stop()
    assert len(dense) == 30
    assert sorted(after - before for before, after in pairwise(dense))[14] < 15e6, "as often as otherwise"


def test_the_state_of_the_window_is_read_from_the_log(tmp_path: Path) -> None:
    log = WordLog(tmp_path / "words.ring", 1 << 12)
    state = WindowState(tmp_path / "words.ring")
    assert state.read() == NO_WINDOW
    log.header[WINDOW_SLOT] = WINDOW_OPEN
    assert state.read() == WINDOW_OPEN
    log.close()
    with pytest.raises(OSError, match="missing"):
        WindowState(tmp_path / "missing.ring")


LINES = b"x = 1", b"    loss = f(\tx)", b"y" * 500


def test_lines_are_read_as_they_were_when_the_run_began(tmp_path: Path) -> None:
    script, later, pipe = tmp_path / "train.py", tmp_path / "later.py", tmp_path / "pipe.py"
    script.write_text("x = 1\n    loss = f(\tx)\n" + "y" * 500)
    os.utime(script, (1, 1))
    later.write_text("a = 1\n")
    os.utime(later, (2**33, 2**33))
    os.mkfifo(pipe)
    source = SourceLines()
    found = source.read({(str(path), line): 1 for path in (script, later, pipe) for line in (0, 1, 2, 3, 9)}, {})
    assert found == {str(script): {"1": "x = 1", "2": "loss = f( x)", "3": "y" * 120}}
    assert source.sum_up() == {str(script): "".join(f"{zlib.crc32(line) & 65535:04x}" for line in LINES)}
    script.unlink()
    assert source.read({(str(script), 2): 5}, {}) == {str(script): {"2": "loss = f( x)"}}


def test_only_the_lines_with_most_samples_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n".join(f"x{line}" for line in range(100)))
    os.utime(script, (1, 1))
    found = SourceLines().read({(str(script), line): line for line in range(1, 100)}, {(str(script), 7): 1})
    assert sorted(map(int, found[str(script)])) == [7, *range(60, 100)]


@pytest.mark.parametrize(
    ("stack", "places"),
    [
        ("main (/home/me/train.py:12)\nstep (/v/site-packages/torch/optim/adam.py:3)", [("/home/me/train.py", 12)]),
        (
            "main (/home/me/train.py:12)\nf (/home/me (old)/net.py:7)",
            [("/home/me (old)/net.py", 7), ("/home/me/train.py", 12)],
        ),
        ("step (/v/site-packages/torch/optim/adam.py:3)", []),
        ("<module> (<stdin>:1)", []),
        ("nonsense", []),
        ("", []),
    ],
)
def test_the_lines_of_the_user_are_found_from_the_innermost_on(stack: str, places: list[tuple[str, int]]) -> None:
    assert [*list_own_places(stack)] == places


@pytest.mark.parametrize(
    ("usual", "dense", "misses"),
    [((100, 0), (0, 0), True), ((99, 0), (0, 0), False), ((60, 60), (5, 0), True), ((61, 60), (5, 0), False)],
)
def test_lines_that_no_window_holds_are_missed(
    tmp_path: Path, usual: tuple[int, int], dense: tuple[int, int], misses: bool
) -> None:
    Assembly(tmp_path).log.close()
    assembler = StacksAssembler(tmp_path, CLOCK)
    numbers = [assembler._book.number(Known(), [(leaf, 0)]) for leaf in (1, 2)]  # type: ignore[arg-type]
    assembler._in_training.update(dict(zip(numbers, usual, strict=True)))
    assembler._in_windows.update(dict(zip(numbers, dense, strict=True)))
    assert assembler.misses_lines() is misses
