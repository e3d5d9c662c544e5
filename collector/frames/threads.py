"""The threads of another interpreter, by its own lists: what begins a walk through memory is found, not believed.

An address in this process is one in another if both run the same file: it lies as far from where the file begins.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType

from collector.frames.layout import WORD_BYTES, LayoutError, find_thread, read_word

_RUNTIME_BYTES = 4096
_INTERPRETER_BYTES = 1 << 17
_THREAD_BYTES = 64
_MOST_THREADS = 10_000
_TRIES = 5
"""Threads begin and end while their list is read."""


@dataclass(frozen=True)
class Program:
    """The file that an interpreter runs, by device and number, and where it begins in memory."""

    file: tuple[str, str]
    begins: int


@dataclass(frozen=True)
class Lists:
    """Where this interpreter keeps its threads: `runtime` is an address here, the others are offsets in bytes."""

    program: Program
    runtime: int
    interpreter: int
    newest: int
    following: int


def find_shift(process: int) -> int:
    """Return by how much the addresses of a process differ from those here. LayoutError if it runs another Python."""
    program = find_lists().program
    for begins, file in _read_places(os.open("maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)):
        if file == program.file:
            return begins.start - program.begins
    raise LayoutError("it runs another Python than the process that reads")


def has_thread(memory: int, shift: int, thread: int) -> bool:
    """Say whether a thread of an interpreter has its state at that address."""
    return any(thread in _list_threads(memory, find_lists(), shift) for _ in range(_TRIES))


@cache
def find_lists() -> Lists:
    """Look for the lists of this process in its own memory. LayoutError if they are not understood."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _find_lists(memory)
        finally:
            os.close(memory)
    except (OSError, StopIteration, ValueError, AttributeError) as error:
        raise LayoutError(f"the threads of this Python are not found: {error!r}") from None


def _find_lists(memory: int) -> Lists:
    places = list(_read_places(os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)))
    program = next(file for lies, file in places if id(CodeType) in lies)
    begins = next(lies.start for lies, file in places if file == program)
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    with _another_thread():
        interpreter = _ask("PyInterpreterState_Main")
        newest = _ask("PyInterpreterState_ThreadHead", interpreter)
        # The newest interpreter stands before the main one; here they are the same.
        in_runtime = list(_find_all(memory, runtime, _RUNTIME_BYTES, interpreter))[:2]
        found = Lists(
            Program(program, begins),
            runtime,
            in_runtime[-1] if in_runtime else -1,
            next(_find_all(memory, interpreter, _INTERPRETER_BYTES, newest)),
            next(_find_all(memory, newest, _THREAD_BYTES, _ask("PyThreadState_Next", newest))),
        )
        if not {newest, find_thread()} <= _list_threads(memory, found, 0):
            raise ValueError("the list of threads is another one")
    return found


@contextmanager
def _another_thread() -> Iterator[None]:
    """Have another thread than this one be the newest."""
    enough, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        enough.wait()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def _ask(name: str, *given: int) -> int:
    function = getattr(ctypes.pythonapi, name)
    function.restype = ctypes.c_void_p
    return int(function(*map(ctypes.c_void_p, given)) or 0)


def _find_all(memory: int, address: int, size: int, value: int) -> Iterator[int]:
    data = os.pread(memory, size, address)
    return (at for at in range(0, len(data) - WORD_BYTES + 1, WORD_BYTES) if value and read_word(data, at) == value)


def _list_threads(memory: int, lists: Lists, shift: int) -> set[int]:
    """Return where the states of the threads lie; those that were reached, where the list changes meanwhile."""
    threads: set[int] = set()
    try:
        interpreter = _read(memory, lists.runtime + shift + lists.interpreter)
        at = _read(memory, interpreter + lists.newest)
        while at and at not in threads and len(threads) < _MOST_THREADS:
            threads.add(at)
            at = _read(memory, at + lists.following)
    except (OSError, OverflowError):
        pass
    return threads


def _read(memory: int, address: int) -> int:
    return read_word(os.pread(memory, WORD_BYTES, address))


def _read_places(maps: int) -> Iterator[tuple[range, tuple[str, str]]]:
    """Yield the addresses of each mapping of a file, and the file's device and number, from low to high. Closes `maps`."""
    with os.fdopen(maps, "r", encoding="utf-8", errors="replace") as file:
        for line in file:
            addresses, _, _, device, number = line.split(maxsplit=5)[:5]
            if number != "0":
                begin, _, end = addresses.partition("-")
                yield range(int(begin, 16), int(end, 16)), (device, number)
