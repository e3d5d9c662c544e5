"""An offer is taken from processes of the training alone; what it leads to is read as it is, while it runs."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from collector.frames import discovery
from collector.frames.discovery import find_layout, find_lists, find_shift
from collector.frames.offers import Family, ForeignError, Offers
from collector.frames.posting import TRAINER, Post, find_thread, post_thread
from collector.frames.reading import MOST_FRAMES, LayoutError, StackReader
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux only")

_SCRIPT = """
import os, sys
from pathlib import Path
from collector.frames.posting import post_thread

class Bilder:
    def größe(self, depth):
        if depth:
            return self.größe(depth - 1)
        post_thread(Path(sys.argv[1]), 3, 7, os.getppid())
        print("there", flush=True)
        sys.stdin.read()  # waits here

def outer():
    return list(map(lambda depth: Bilder().größe(depth), [int(sys.argv[2])]))

outer()
"""


@pytest.fixture
def waiting(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that has offered its stack and waits in a method that calls itself."""
    script = tmp_path / "waiting.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    depth = str(getattr(request, "param", 1))
    arguments = [sys.executable, str(script), str(tmp_path), depth]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process
        process.kill()


def _open(folder: Path) -> StackReader:
    ((_, reader),) = _offers(folder).take()
    return reader


def _offers(folder: Path) -> Offers:
    return Offers(folder, Family(os.getpid()))


def _list_lines(reader: StackReader, script: str) -> list[tuple[str, int]]:
    codes = [(code, at) for place, at in reader.read() or () if (code := reader.describe(place)) is not None]
    return [(code.name.rpartition(".")[2], code.find_line(at)) for code, at in codes if code.file == script]


def test_functions_files_and_lines_of_another_process_are_read(tmp_path: Path, waiting: subprocess.Popen[str]) -> None:
    ((post, reader),) = _offers(tmp_path).take()
    assert (post.pid, post.replica, post.loader) == (waiting.pid, 3, 7)
    script = str(tmp_path / "waiting.py")
    deadline = time.monotonic() + 60.0
    lines = _list_lines(reader, script)
    while lines[0][1] != 12 and time.monotonic() < deadline:  # it may not have got there
        lines = _list_lines(reader, script)
    assert lines == [("größe", 12), ("größe", 9), ("<lambda>", 15), ("outer", 15), ("<module>", 17)]


def test_an_offer_is_taken_once(tmp_path: Path, waiting: subprocess.Popen[str]) -> None:
    assert len(list(_offers(tmp_path).take())) == 1
    assert not list(_offers(tmp_path).take())


def test_a_process_that_has_ended_says_so(tmp_path: Path, waiting: subprocess.Popen[str]) -> None:
    reader = _open(tmp_path)
    waiting.kill()
    waiting.wait()
    with pytest.raises(OSError, match=r"gone|\["):
        reader.read()


@pytest.mark.parametrize("waiting", [MOST_FRAMES - 100], indirect=True)
def test_a_deep_stack_is_read_whole(tmp_path: Path, waiting: subprocess.Popen[str]) -> None:
    reader = _open(tmp_path)
    places = reader.read()
    assert places is not None
    assert len(places) > MOST_FRAMES - 100


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 4000, '{"pid": 1}', '{"pid": "x", "layout": {}}'])
def test_a_damaged_offer_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "frames-1-1.json").write_text(text)
    assert not list(_offers(tmp_path).take())


def test_a_wrong_address_is_no_stack_and_no_crash(tmp_path: Path) -> None:
    for thread in (8, find_thread() + 4096 * 7, (1 << 63) + 16):
        reader = StackReader(os.open("/proc/self/mem", os.O_RDONLY), find_layout(), thread)
        try:
            places = reader.read()
        except OSError:
            continue
        assert places is None or all(reader.describe(code) is None for code, _ in places)


_WAITS = "import sys; print(flush=True); sys.stdin.read()"


@contextmanager
def _start(*command: str, user: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a process that prints a line when it has begun, and ends when it can read no more."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=user) as process:
        yield process
        process.kill()


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _offer_here(folder: Path, **changes: int) -> Path:
    """Write an offer of this process, changed."""
    post = dataclasses.replace(Post(os.getpid(), find_thread(), TRAINER, -1), **changes)
    path = folder / "frames-1-1.json"
    path.write_text(json.dumps(dataclasses.asdict(post)))
    return path


def _take(folder: Path) -> tuple[int, ...]:
    return tuple(post.pid for post, _ in Offers(folder, Family(os.getpid())).take())


def test_what_this_process_has_started_is_of_its_family() -> None:
    family = Family(os.getpid())
    with _start(sys.executable, "-c", _WAITS) as child:
        _read_line(child)
        os.close(family.open_process(child.pid))
    with pytest.raises(OSError, match="No such"):
        family.open_process(child.pid)
    nested = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {_WAITS!r}]).pid, flush=True)"
    with _start(sys.executable, "-c", f"{nested}; sys.stdin.read()") as child:
        os.close(family.open_process(int(_read_line(child))))


def test_other_processes_are_not() -> None:
    family = Family(os.getpid())
    for pid in (os.getppid(), 1):
        with pytest.raises(ForeignError):
            family.open_process(pid)
    with pytest.raises(ForeignError):
        Family(1)
    # Its parent has ended, so nobody can say any more that this process has started it.
    text = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {_WAITS!r}]).pid, flush=True)"
    with _start(sys.executable, "-c", text) as child:
        orphan = int(_read_line(child))
        child.wait()
        with pytest.raises(ForeignError):
            family.open_process(orphan)


def test_a_number_that_another_process_got_meanwhile_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family(os.getpid())
    monkeypatch.setattr(family, "_started", family._started - 1)
    with pytest.raises(ForeignError):
        family.open_process(os.getpid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_process_of_another_user_is_not_read() -> None:
    with _start("/bin/cat", user=65534) as child, pytest.raises(PermissionError):
        Family(os.getpid()).open_process(child.pid)


def test_only_the_states_of_threads_begin_a_walk_through_memory(tmp_path: Path) -> None:
    for address in (find_thread() + 8, id(tmp_path), 0, -1, 1 << 62, (1 << 64) - 8, 1 << 80):
        offer = _offer_here(tmp_path, thread=address)
        assert _take(tmp_path) == ()
        assert not offer.exists()
    _offer_here(tmp_path)
    assert _take(tmp_path) == (os.getpid(),)


@pytest.mark.parametrize("changes", [{"pid": 1}, {"replica": 3}, {"pid": -1}, {"pid": 1 << 70}, {"loader": 1 << 31}])
def test_an_offer_that_is_not_the_training_threads_is_left_out(tmp_path: Path, changes: dict[str, int]) -> None:
    _offer_here(tmp_path, **changes)
    assert _take(tmp_path) == ()


def test_only_small_plain_files_of_the_owner_are_taken(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    (events / "frames-1-1.json").symlink_to(_offer_here(tmp_path))
    assert _take(events) == ()
    offer = _offer_here(events)
    raw = json.loads(offer.read_text())
    offer.write_text(offer.read_text() + " " * 5000)
    assert _take(events) == ()
    os.mkfifo(events / "frames-2-1.json")
    assert _take(events) == ()
    for text in (json.dumps({**raw, "thread": str(raw["thread"])}), json.dumps({**raw, "layout": {}}), "[1]", "1"):
        offer.write_text(text)
        assert _take(events) == ()
    assert list(events.iterdir()) == []  # none is looked at again


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_taken(tmp_path: Path) -> None:
    os.chown(_offer_here(tmp_path), 65534, -1)
    assert _take(tmp_path) == ()


def test_another_python_is_named_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = os.open("/proc/self", os.O_RDONLY)
    assert find_shift(process) == 0
    other = dataclasses.replace(find_lists(), program=discovery.Program(("00:00", "1"), 0))
    monkeypatch.setattr(discovery, "find_lists", lambda: other)
    with pytest.raises(LayoutError, match="another Python"):
        find_shift(process)
    os.close(process)
    _offer_here(tmp_path)
    offers = Offers(tmp_path, Family(os.getpid()))
    assert list(offers.take()) == []
    assert "another Python" in offers.refusal
    monkeypatch.undo()
    _offer_here(tmp_path)
    ((_, reader),) = offers.take()
    assert reader.read()


def _wait(folder: str, event: Event) -> None:
    post_thread(Path(folder), 4, 0, 0)
    event.wait(60)


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_a_worker_is_read_however_it_is_started(tmp_path: Path, way: str) -> None:
    context: Any = multiprocessing.get_context(way)
    event = context.Event()
    worker = context.Process(target=_wait, args=(str(tmp_path), event))
    worker.start()
    offers = Offers(tmp_path, Family(os.getpid()))
    ((post, reader),) = wait_for(lambda: list(offers.take()))
    assert post.pid == worker.pid
    wait_for(lambda: "_wait" in [code.name for at in reader.read() or () if (code := reader.describe(at[0]))])
    event.set()
    worker.join()
