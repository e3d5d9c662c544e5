"""The stack of another process is read as it is, while it runs, and what cannot be read is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.frames.discovery import find_layout
from collector.frames.offers import Family, Offers
from collector.frames.posting import TRAINER, find_thread, post_thread
from collector.frames.reading import MOST_FRAMES, StackReader

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


def test_an_offer_of_this_process_names_this_function(tmp_path: Path) -> None:
    post_thread(tmp_path, TRAINER, -1, os.getpid())
    reader = _open(tmp_path)
    places = reader.read()
    assert places is not None
    names = [code.name for place in places if (code := reader.describe(place[0])) is not None]
    assert any(name.endswith("test_an_offer_of_this_process_names_this_function") for name in names)
