"""Read a pickle of plain values without unpickling it: no opcode that could import or call anything is obeyed."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

MAGIC = b"\x80"
_MARK = object()
_MOST_OPCODES = 50_000_000
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    {
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
    }
)
_NOTHING = frozenset({"PROTO", "FRAME"})
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class PickleError(ValueError):
    """The bytes are no pickle of plain values; the text says what is wrong and at which byte."""


def read_plain_pickle(data: bytes) -> Any:
    """Return the value: dicts, lists, tuples, texts, bytes, numbers, True, False and None. Raises PickleError.

    A value may be shared, and a list may hold itself: readers must not walk it without a bound.
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
            self._make_tuple(_TUPLES[name])
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

    def _make_tuple(self, count: int) -> None:
        values = tuple(self.pop() for _ in range(count))[::-1]
        self._stack.append(values)

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
