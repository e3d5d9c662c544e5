"""Find where this interpreter keeps its stacks in memory, by searching memory for a known stack.

The layout differs from version to version. Instead of a list of versions, a process searches its own memory for the
addresses of its own frames and code objects. It then reads its own stack with the layout found. If the result is not
exactly the stack of `sys._getframe`, there is no layout. Memory is read through /proc/self/mem, where a wrong address
gives an error and no crash.

The threads of another interpreter are found in that interpreter's own lists, so no offered address is trusted. An
address in this process can be converted to another process if both run the same file: its distance from the file's
start is the same.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType

from collector.frames.posting import find_thread
from collector.frames.reading import DIRECT, WORD_BYTES, Layout, LayoutError, StackReader, read_word

_FRAME_BYTES = 160
_THREAD_BYTES = 512
_CODE_BYTES = 240
_HOLDER_BYTES = 24
_FRAME_OBJECT_WORDS = 6
_LEAST_ADDRESS = 1 << 16
_TAGS = ~3
"""Mask that removes the tag bits which Python 3.14 keeps in the low bits of a reference."""
_TEXT_STATE = 32
_RUNTIME_BYTES = 4096
_INTERPRETER_BYTES = 1 << 17
_LINK_BYTES = 64
_MOST_THREADS = 10_000
MOST_LISTED = 64
"""Most threads of a process that `list_natives` lists: each costs some 2 µs."""
_TRIES = 5
"""Number of tries to read the list of threads, since threads begin and end meanwhile."""


@cache
def find_layout() -> Layout:
    """Return the memory layout of stacks in this process. Raise LayoutError if it is not found."""
    with _own_memory(f"Python {sys.version.split()[0]} is not understood") as memory:
        layout = _look(memory)
        _check(memory, layout)
    return layout


@contextmanager
def _own_memory(what: str) -> Iterator[int]:
    """Yield a descriptor of this process's memory. What is not found in it raises LayoutError with `what`."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LayoutError(f"/proc/self/mem cannot be read: {error}") from None
    try:
        yield memory
    except (OSError, StopIteration, ValueError, AttributeError) as error:
        raise LayoutError(f"{what}: {error!r}") from None
    finally:
        os.close(memory)


def _look(memory: int) -> Layout:
    thread, holder = _find_top(memory)
    code, previous, instruction, instructions = _call_nested(lambda: _find_frame(memory), 3)
    own = (lambda: 0).__code__  # its qualified name is not its name
    of_code = os.pread(memory, _CODE_BYTES, id(own))
    kind_shift, ascii_shift = _find_text_bits(memory)
    return Layout(
        thread=thread,
        holder=holder,
        code=code,
        previous=previous,
        instruction=instruction,
        instructions=instructions,
        code_type=id(CodeType),
        file=_find_word([of_code], [id(own.co_filename)]),
        name=_find_word([of_code], [id(getattr(own, "co_qualname", own.co_name))]),
        first_line=_find_number([of_code], [own.co_firstlineno]),
        lines=_find_word([of_code], [id(own.co_linetable)]),
        ascii_text=sys.getsizeof("") - 1,
        wide_text=sys.getsizeof("\u0394") - 4,
        kind_shift=kind_shift,
        ascii_shift=ascii_shift,
    )


def _call_nested(action: Callable[[], tuple[int, int, int, int]], depth: int) -> tuple[int, int, int, int]:
    # The frames stop at different instructions, so that no frame can be mistaken for another.
    if depth == 2:
        return _call_nested(action, depth - 1)
    return _call_nested(action, depth - 1) if depth else action()


def _find_frame(memory: int) -> tuple[int, int, int, int]:
    """Return three offsets in a frame, and the start of the instructions in a code object.

    The offsets are those of the code, the previous frame and the instruction. They are found in the frames of this
    function's callers.
    """
    frames = list_frames(sys._getframe())[1:6]
    places = [_locate(memory, frame) for frame in frames]
    blocks = [os.pread(memory, _FRAME_BYTES, place) for place in places]
    code = _find_word(blocks, [id(frame.f_code) for frame in frames], _TAGS)
    previous = _find_word(blocks[:-1], places[1:])
    if sys.version_info < (3, 11):
        return code, previous, _find_number(blocks, [frame.f_lasti // 2 for frame in frames]), 0
    begin = CodeType.__basicsize__
    return code, previous, _find_word(blocks, [id(frame.f_code) + begin + frame.f_lasti for frame in frames]), begin


def list_frames(frame: FrameType | None) -> list[FrameType]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _locate(memory: int, frame: FrameType) -> int:
    code = id(frame.f_code)
    if sys.version_info < (3, 11):
        return id(frame)
    for offset in range(2, _FRAME_OBJECT_WORDS):
        place = read_word(os.pread(memory, WORD_BYTES, id(frame) + offset * WORD_BYTES))
        if place >= _LEAST_ADDRESS and not place % WORD_BYTES:
            block = _try_read(memory, place, _FRAME_BYTES)
            words = range(0, min(len(block), _FRAME_BYTES // 2), WORD_BYTES)
            if place != id(frame.f_back) and any(read_word(block, at) & _TAGS == code for at in words):
                return place
    raise ValueError("frames")


def _try_read(memory: int, address: int, size: int) -> bytes:
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""


def _find_word(blocks: Sequence[bytes], values: Sequence[int], mask: int = -1) -> int:
    """Return the first offset at which each block holds its value. Raise StopIteration if there is none."""
    pairs = list(zip(blocks, values, strict=True))
    places = range(0, min(map(len, blocks)) - WORD_BYTES + 1, WORD_BYTES)
    return next(at for at in places if all(read_word(block, at) & mask == value for block, value in pairs))


def _find_number(blocks: Sequence[bytes], values: Sequence[int]) -> int:
    """Return the first offset at which each block holds its 32-bit integer. StopIteration without one."""
    pairs = list(zip(blocks, values, strict=True))
    places = range(16, min(map(len, blocks)) - 3, 4)
    return next(
        at for at in places if all(int.from_bytes(block[at : at + 4], "little") == value for block, value in pairs)
    )


def _find_top(memory: int) -> tuple[int, int]:
    """Return two offsets that lead from a thread's state to its newest frame.

    The first is the offset of a pointer in the state. The second is the offset of the frame's address in the object at
    that pointer, or DIRECT if the pointer leads to the frame itself. Both are checked at different depths of calls.
    """
    found = _list_tops(memory)
    found &= _list_tops_below(memory, 4)
    found &= next(map(_list_tops, [memory]))  # through C
    if not found:
        raise ValueError("the newest frame of a thread")
    return min(found, key=lambda place: (place[1] != DIRECT, place))


def _list_tops_below(memory: int, depth: int) -> set[tuple[int, int]]:
    return _list_tops_below(memory, depth - 1) if depth else _list_tops(memory)


def _list_tops(memory: int) -> set[tuple[int, int]]:
    """Return all pairs of offsets, as in `_find_top`, that lead from this thread's state to the current frame."""
    here = _locate(memory, sys._getframe())
    state = os.pread(memory, _THREAD_BYTES, find_thread())
    found = set()
    for at in range(0, len(state) - WORD_BYTES + 1, WORD_BYTES):
        value = read_word(state, at)
        if value == here:
            found.add((at, DIRECT))
        elif value >= _LEAST_ADDRESS and not value % WORD_BYTES:
            try:  # not by `_try_read`, whose frame would be the newest one
                held = os.pread(memory, _HOLDER_BYTES, value)
            except (OSError, OverflowError):
                continue
            found |= {(at, place) for place in range(0, len(held) - 7, WORD_BYTES) if read_word(held, place) == here}
    return found


def _find_text_bits(memory: int) -> tuple[int, int]:
    """Return two bit positions in the state word of a str: bytes per character, and whether it is ASCII."""
    texts = ["".join(parts) for parts in (("stacks", "."), ("\u00e9", "t"), ("\u0394", "t"), ("\U0001f600", "t"))]
    states = [int.from_bytes(os.pread(memory, 4, id(text) + _TEXT_STATE), "little") for text in texts]
    kind = next(shift for shift in range(29) if [state >> shift & 7 for state in states] == [1, 1, 2, 4])
    is_ascii = next(shift for shift in range(kind + 3, 32) if [state >> shift & 1 for state in states] == [1, 0, 0, 0])
    return kind, is_ascii


def _check(memory: int, layout: Layout) -> None:
    """Read a stack of this thread with the layout. Raise ValueError if it differs from the real stack."""
    reader = StackReader(os.dup(memory), layout, find_thread())

    def compare(_: object = None) -> bool:
        seen, frames = reader.read(), list_frames(sys._getframe())
        if seen is None:
            raise ValueError("the stack has no end")
        known = [(id(frame.f_code), frame.f_lasti) for frame in frames]
        # The first frames run while they are read. Frames of the interpreter itself may lie between the other frames.
        found = [place for place in seen if reader.describe(place[0]) is not None]
        if [code for code, _ in found][-len(known) + 1 :] != [code for code, _ in known][1:]:
            raise ValueError("the stack is another one")
        if found[-len(known) + 2 :] != known[2:]:
            raise ValueError("the instructions are others")
        for frame in frames[1:]:
            code, place = reader.describe(id(frame.f_code)), (frame.f_code.co_filename, frame.f_lineno)
            if code is None or (code.file, code.find_line(frame.f_lasti)) != place:
                raise ValueError("the names are others")
        return True

    compare()
    all(map(compare, range(2)))


@dataclass(frozen=True)
class Program:
    """The executable file of an interpreter, by device and inode number, and its start address in memory."""

    file: tuple[str, str]
    begins: int


@dataclass(frozen=True)
class Lists:
    """The way to the states of all threads of an interpreter. `runtime` is the address of its runtime. The other fields
    are offsets in bytes: of the interpreter in the runtime, of the newest thread in the interpreter, and of the
    following thread and of the system's number in a thread. The last is 0 where threads do not hold it, before Python 3.11."""

    program: Program
    runtime: int
    interpreter: int
    newest: int
    following: int
    native: int


def find_shift(process: int) -> int:
    """Return the distance of a process's addresses from ours. LayoutError if it runs another Python."""
    program = find_lists().program
    for begins, file in _read_places(os.open("maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)):
        if file == program.file:
            return begins.start - program.begins
    raise LayoutError("it runs another Python than the process that reads")


def has_thread(memory: int, shift: int, thread: int) -> bool:
    """Return whether `thread` is a thread state in another process's `memory`; `shift` is of `find_shift`."""
    return any(thread in _list_threads(memory, find_lists(), shift) for _ in range(_TRIES))


def list_natives(memory: int, shift: int) -> dict[int, int]:
    """Return the threads of another process that run Python: the system's number of each, and the address of its state.

    Empty where threads do not hold that number, or with more than `MOST_LISTED`. `memory` and `shift` are as in
    `has_thread`.
    """
    lists = find_lists()
    threads = _list_threads(memory, lists, shift, MOST_LISTED + 1) if lists.native else ()
    if len(threads) > MOST_LISTED:
        return {}
    try:
        return {_read(memory, thread + lists.native): thread for thread in threads}
    except (OSError, OverflowError):
        return {}


@cache
def find_lists() -> Lists:
    """Return the way to the threads of this process, found in its own memory. Raise LayoutError if it is not found."""
    with _own_memory("the threads of this Python are not found") as memory:
        return _find_lists(memory)


def _find_lists(memory: int) -> Lists:
    places = list(_read_places(os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)))
    program = next(file for lies, file in places if id(CodeType) in lies)
    begins = next(lies.start for lies, file in places if file == program)
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    with _another_thread() as other:
        interpreter = _ask("PyInterpreterState_Main")
        newest = _ask("PyInterpreterState_ThreadHead", interpreter)
        # The newest interpreter stands before the main one; here they are the same.
        in_runtime = list(_find_all(memory, runtime, _RUNTIME_BYTES, interpreter))[:2]
        found = Lists(
            Program(program, begins),
            runtime,
            in_runtime[-1] if in_runtime else -1,
            next(_find_all(memory, interpreter, _INTERPRETER_BYTES, newest)),
            next(_find_all(memory, newest, _LINK_BYTES, _ask("PyThreadState_Next", newest))),
            _find_native(memory, {find_thread(): threading.get_native_id(), newest: other}),
        )
        if not {newest, find_thread()} <= _list_threads(memory, found, 0):
            raise ValueError("the list of threads is another one")
    return found


def _find_native(memory: int, natives: Mapping[int, int]) -> int:
    """Return the offset of the system's number in a thread's state, 0 if there is none."""
    blocks = [os.pread(memory, _THREAD_BYTES, thread) for thread in natives]
    try:
        return _find_word(blocks, [*natives.values()])
    except StopIteration:
        return 0


@contextmanager
def _another_thread() -> Iterator[int]:
    """Run a thread that waits. Yield the system's number of it."""
    enough, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        enough.wait()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    begun.wait()
    try:
        yield thread.native_id or 0
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


def _list_threads(memory: int, lists: Lists, shift: int, most: int = _MOST_THREADS) -> set[int]:
    """Return the addresses of thread states. If threads begin or end meanwhile, or memory is unreadable, some may be
    missing."""
    threads: set[int] = set()
    try:
        interpreter = _read(memory, lists.runtime + shift + lists.interpreter)
        at = _read(memory, interpreter + lists.newest)
        while at and at not in threads and len(threads) < most:
            threads.add(at)
            at = _read(memory, at + lists.following)
    except (OSError, OverflowError):
        pass
    return threads


def _read(memory: int, address: int) -> int:
    return read_word(os.pread(memory, WORD_BYTES, address))


def _read_places(maps: int) -> Iterator[tuple[range, tuple[str, str]]]:
    """Yield the address range of each mapped file, with its device and inode number, in ascending order.

    `maps` is a descriptor of /proc/PID/maps, which is closed.
    """
    with os.fdopen(maps, "r", encoding="utf-8", errors="replace") as file:
        for line in file:
            addresses, _, _, device, number = line.split(maxsplit=5)[:5]
            if number != "0":
                begin, _, end = addresses.partition("-")
                yield range(int(begin, 16), int(end, 16)), (device, number)
