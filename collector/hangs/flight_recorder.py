"""Read dumps of PyTorch's Flight Recorder: the process groups of a rank, and its most recent collectives."""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collector.format.schema.reading import read_number, read_text
from collector.format.words import find_element_bytes

MAGIC = b"\x80"
_MARK = object()
_MOST_OPCODES = 50_000_000
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    [
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
    ]
)
_NOTHING = frozenset({"PROTO", "FRAME"})
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class PickleError(ValueError):
    """The bytes are no pickle of plain values; the text gives the problem and the byte."""


def read_plain_pickle(data: bytes) -> Any:
    """Return the value in a pickle of plain values: dicts, lists, tuples, texts, bytes, numbers, True, False and None.

    Raise PickleError for anything else. A value may be shared, and a list may contain itself, so readers must bound
    their walk.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, place) in enumerate(pickletools.genops(data)):
            if count > _MOST_OPCODES:
                raise PickleError(f"it has more than {_MOST_OPCODES:,} opcodes")
            if opcode.name == "STOP":
                return machine.pop()
            machine.obey(opcode.name, argument, place or 0)
    except PickleError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise PickleError(f"it is cut or damaged ({str(error)[:120]})") from None
    raise PickleError("it ends without STOP")


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value must be")
        return value

    def obey(self, name: str, argument: Any, place: int) -> None:
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            self._stack.append(tuple(self.pop() for _ in range(_TUPLES[name]))[::-1])
        elif name in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._stack[-1]
        elif name == "MARK":
            self._stack.append(_MARK)
        elif name not in _NOTHING:
            self._collect(name, place)

    def _collect(self, name: str, place: int) -> None:
        if name == "TUPLE":
            self._stack.append(tuple(self._take_marked()))
        elif name == "APPENDS":
            values = self._take_marked()
            self._top(list).extend(values)
        elif name == "APPEND":
            value = self.pop()
            self._top(list).append(value)
        elif name == "SETITEMS":
            values = self._take_marked()
            self._top(dict).update(zip(values[::2], values[1::2], strict=True))
        elif name == "SETITEM":
            value, key = self.pop(), self.pop()
            self._top(dict)[key] = value
        else:
            raise PickleError(f"byte {place} holds the opcode {name}, which plain values do not need and may run code")

    def _take_marked(self) -> list[Any]:
        values = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _top(self, kind: type) -> Any:
        top = self._stack[-1]
        if type(top) is not kind:
            raise ValueError(f"a {kind.__name__} is missing")
        return top


_RANK = re.compile(r"(\d{1,9})\D*$")
_MOST_PATH = 4096
_NUMBERS = re.compile(r"\d{1,9}")
_MOST_RANKS = 1_000_000
_MOST_ENTRIES = 1_000_000
_OWN_CODE = re.compile(
    r"packages[\\/]torch[\\/]|(?:^|[\\/])torch[\\/](?:distributed|nn|optim|utils|autograd|_\w+)\b|<frozen"
    r"|[\\/]collector[\\/](?:signals|launch|session)[\\/]"
)
"""Paths of PyTorch's code and of Stepscope's, which surrounds a recorded collective."""


class DumpError(ValueError):
    """The values are no dump of the Flight Recorder; the text names the missing item."""


@dataclass(frozen=True)
class Entry:
    """One collective that a rank entered. `sequence` is its number in its group; point-to-point calls are numbered
    separately.

    Times are in Unix ns; without a time, `created_ns` is 0 and the other times are None. `bytes` (None if unknown),
    `dtype` and `shapes` are those of its input. `place` is the innermost call outside of torch, "" if unknown.
    """

    group: str
    sequence: int
    name: str
    is_p2p: bool
    is_completed: bool
    is_started: bool
    created_ns: int
    started_ns: int | None
    completed_ns: int | None
    bytes: int | None
    dtype: str
    shapes: str
    place: str


@dataclass(frozen=True)
class Dump:
    """The dump of one rank. Its maps have an item for each process group, by the group's name.

    `groups` has the ranks of a group; it is empty if the dump does not list them. `labels` has the purpose of a group.
    `entered` is the number of the newest collective that the rank entered, even if its entry was overwritten. `is_cut`
    means that entries were overwritten. A group without entries may then still have had collectives. `rank` is None if
    unknown.
    """

    rank: int | None
    version: str
    groups: Mapping[str, tuple[int, ...]]
    labels: Mapping[str, str]
    entries: tuple[Entry, ...]
    entered: Mapping[str, int]
    is_cut: bool


def is_dump(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("entries"), list) and "pg_config" in value


def read_dump(value: Any, file_name: str) -> Dump:
    """Return the flight recorder's dump from the unpickled content of its file.

    Raise DumpError if there is no list of entries, if there are too many entries, or if an entry is malformed or has no
    sequence number. The rank is the number at the end of the file name, where PyTorch writes it; None without a number.
    Early versions of PyTorch do not list the process groups, and number sends and receives as collectives.
    """
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        raise DumpError("it has no list of entries")
    if len(value["entries"]) > _MOST_ENTRIES:
        raise DumpError(f"it has {len(value['entries']):,} entries; up to {_MOST_ENTRIES:,} are read")
    told = value.get("pg_config")
    config = told if isinstance(told, dict) else {}
    status = value.get("pg_status")
    done = {
        read_text(group): read_number(entry.get("last_completed_collective"), -1)
        for group, entry in (status.items() if isinstance(status, dict) else ())
        if isinstance(entry, dict)
    }
    entries = tuple(_read_entry(entry, at, done) for at, entry in enumerate(value["entries"]))
    match = _RANK.search(file_name)
    return Dump(
        rank=int(match[1]) if match else None,
        version=read_text(value.get("version"))[:20],
        groups={read_text(name): _read_ranks(entry) for name, entry in config.items()},
        labels=_read_labels(value["entries"]),
        entries=entries,
        entered=_read_entered(value["entries"], status if isinstance(status, dict) else {}),
        is_cut=min((read_number(entry.get("record_id"), 0) for entry in value["entries"]), default=0) > 0,
    )


def _read_entered(entries: list[Any], status: Mapping[Any, Any]) -> dict[str, int]:
    """Map groups to the newest collective that the rank entered; `status` numbers groups on this rank only."""
    names = {read_text(entry.get("pg_id")): _read_group(entry) for entry in entries}
    names.setdefault("0", "0")  # the group of all ranks, which is made first
    found = {
        names[read_text(number)]: read_number(entry.get("last_enqueued_collective"), -1)
        for number, entry in status.items()
        if read_text(number) in names and isinstance(entry, dict)
    }
    return {name: number for name, number in found.items() if number >= 0}


def _read_entry(entry: Any, at: int, done: Mapping[str, int]) -> Entry:
    if not isinstance(entry, dict):
        raise DumpError(f"entry {at} is not a mapping")
    is_p2p = bool(entry.get("is_p2p"))
    sequence = read_number(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id")), -1)
    if sequence < 0:
        raise DumpError(f"entry {at} has no sequence number")
    group, state = _read_group(entry), read_text(entry.get("state"))
    number = read_text(entry.get("pg_id"))
    # Gloo notes no state, but drops a call from its watch once it has ended.
    is_completed = (
        state == "completed" or bool(entry.get("retired")) or (not is_p2p and sequence <= done.get(number, -1))
    )
    dtype, shapes = _first(entry.get("input_dtypes")), entry.get("input_sizes")
    return Entry(
        group=group,
        sequence=sequence,
        name=read_text(entry.get("profiling_name") or "collective"),
        is_p2p=is_p2p,
        is_completed=is_completed,
        is_started=is_completed or state == "started",
        created_ns=read_number(entry.get("time_created_ns"), 0),
        started_ns=read_number(entry.get("time_discovered_started_ns"), 0) or None,
        completed_ns=read_number(entry.get("time_discovered_completed_ns"), 0) or None,
        bytes=_count_bytes(shapes, dtype),
        dtype=dtype,
        shapes=_format_shapes(shapes),
        place=_find_place(entry.get("frames")),
    )


def _read_group(entry: Mapping[Any, Any]) -> str:
    group = entry.get("process_group")
    if isinstance(group, (tuple, list)) and group:
        return read_text(group[0])
    return read_text(entry.get("pg_id", ""))


def _read_labels(entries: list[Any]) -> dict[str, str]:
    """Map each group's name to its purpose, such as "default_pg". Every entry has both for its group."""
    found: dict[str, str] = {}
    for entry in entries:
        group = entry.get("process_group") if isinstance(entry, dict) else None
        if isinstance(group, (tuple, list)) and len(group) > 1:
            found.setdefault(read_text(group[0]), read_text(group[1]))
    return found


def _read_ranks(entry: Any) -> tuple[int, ...]:
    told = entry.get("ranks", "") if isinstance(entry, dict) else ""
    numbers = [int(number) for number in _NUMBERS.findall(told)] if isinstance(told, str) else []
    if isinstance(told, list):
        numbers = [rank for number in told[:_MOST_RANKS] if (rank := read_number(number, -1)) >= 0]
    return tuple(sorted(set(numbers)))[:_MOST_RANKS]


def _count_bytes(shapes: Any, dtype: str) -> int | None:
    size = find_element_bytes(dtype)
    if size is None or not isinstance(shapes, list):
        return None
    total = 0
    for shape in shapes[:10_000]:
        numbers = [read_number(n, -1) for n in shape] if isinstance(shape, (list, tuple)) and len(shape) < 32 else [-1]
        if min(numbers, default=0) < 0:
            return None
        count = 1
        for number in numbers:
            count *= number
        total += count
    return min(total * size, 1 << 62)


def _format_shapes(shapes: Any) -> str:
    if not isinstance(shapes, list):
        return ""
    known = [shape for shape in shapes[:4] if isinstance(shape, (list, tuple)) and len(shape) < 32]
    return ", ".join("[" + ", ".join(str(read_number(n, -1)) for n in shape) + "]" for shape in known)


def _find_place(frames: Any) -> str:
    """Return the innermost frame outside of torch and Stepscope, as "train.py:88 in step"; "" if there is none."""
    for frame in frames[:200] if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        told = frame.get("filename")
        path = told[-_MOST_PATH:] if isinstance(told, str) else ""
        if path and not _OWN_CODE.search(path):
            name = path.replace("\\", "/").rsplit("/", 1)[-1]
            return f"{read_text(name)}:{read_number(frame.get('line'), 0)} in {read_text(frame.get('name', ''))}"
    return ""


def _first(values: Any) -> str:
    return read_text(values[0]) if isinstance(values, list) and values else ""
