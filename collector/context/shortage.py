"""What an error says of the memory that ran out, and which code asked for the memory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

_MOST_ERRORS, _MOST_TEXT = 16, 4_000
_MOST_FRAMES = 1_000
"""Most frames of a traceback, innermost first, that are read."""
_KINDS = re.compile(r"\b(\w+?)?(?: backend)? ?out of memory\b|DefaultCPUAllocator: ", re.IGNORECASE)
"""The texts of RuntimeErrors on memory. Accelerators have the name of their kind in front."""
_SIZE = r"(\d+(?:\.\d+)?) ?([KMGTPE]i?B|bytes)"
_SIZES: Mapping[str, str] = {
    "requested_bytes": rf"(?:tried|Unable) to allocate {_SIZE}",
    "total_bytes": rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity|max allowed: {_SIZE}",
    "free_bytes": rf"of which {_SIZE} is ?free|{_SIZE} free",
    "process_bytes": rf"this process has {_SIZE}",
    "allocated_bytes": rf"{_SIZE} (?:is|already) allocated|MPS allocated: {_SIZE}",
    "unallocated_bytes": rf"{_SIZE} is reserved by PyTorch but unallocated",
}
"""The sizes in the texts of PyTorch's allocators, as of 1.4 to 2.13, and of NumPy."""
_UNITS = "BKMGTPE"
_OPTIMIZED = 1
"""The flag of code whose frame makes a copy of its locals to show them: the code of functions."""


@dataclass(frozen=True)
class Shortage:
    """The memory that ran out, as the text of its error tells it. `device` is a name such as `cuda:0` or `cpu`, without
    its number where that is unknown, and "" for an unknown accelerator. `sizes` are bytes, by name of the fact."""

    device: str
    sizes: Mapping[str, int]

    def concerns(self, device: Any) -> bool:
        """Return whether a torch.device is that of the memory that ran out."""
        if not self.device:
            return str(device.type) not in ("cpu", "meta")
        kind, _, number = self.device.partition(":")
        return str(device.type) == kind and number in ("", str(device.index))


def find_memory_error(error: BaseException, own_kind: Any) -> BaseException | None:
    """Return the error on memory among an error and its causes, None if there is none. `own_kind` is PyTorch's class of
    such errors.

    An error that was only being handled meanwhile is no cause: the training may have gone on after it.
    """
    each: BaseException | None = error
    for _ in range(_MOST_ERRORS):
        if each is None:
            return None
        if issubclass(type(each), (own_kind, MemoryError)):
            return each
        if issubclass(type(each), RuntimeError) and _KINDS.search(_read_text(each)):
            return each
        is_exit = issubclass(type(each), SystemExit) and not each.__suppress_context__
        each = each.__cause__ or (each.__context__ if is_exit else None)
    return None


def read_shortage(error: BaseException) -> Shortage:
    """Return the figures in the text of an error on memory."""
    text = _read_text(error)
    sizes = {}
    for name, pattern in _SIZES.items():
        if (found := re.search(pattern, text, re.IGNORECASE)) is not None:
            number, unit = (part for part in found.groups() if part)
            sizes[name] = int(float(number) * 1024 ** _UNITS.index(unit[0].upper()))
    is_host = issubclass(type(error), MemoryError) or "DefaultCPUAllocator" in text
    return Shortage("cpu" if is_host else _find_device(text), sizes)


def _find_device(text: str) -> str:
    found = _KINDS.search(text)
    kind = ((found and found[1]) or "").lower().replace("hip", "cuda")
    number = re.search(r"\b(?:GPU|Device) (\d+)\b", text)
    if kind not in ("cuda", "xpu", "mps", "hpu", "npu", "mlu"):
        return ""
    return f"{kind}:{number[1]}" if number else kind


def _read_text(error: BaseException) -> str:
    """Return the text of an error. No code of the user's runs, such as `__str__`."""
    args: Any = vars(BaseException)["args"].__get__(error)
    if args and type(args[0]) is str:
        return str(args[0][:_MOST_TEXT])
    return str(error)[:_MOST_TEXT] if type(error).__module__.startswith("numpy.") else ""


def list_frames(traceback: TracebackType | None) -> list[tuple[FrameType, int]]:
    """Return the frames of a traceback with the line of each, innermost first."""
    found = []
    while traceback is not None:
        found.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found[: -_MOST_FRAMES - 1 : -1]


def list_locals(frames: list[tuple[FrameType, int]]) -> Iterator[tuple[FrameType, Mapping[str, Any]]]:
    """Yield frames with their local variables.

    Functions that still run are left out before Python 3.13: there the frame would keep a copy of its locals, and with
    it tensors that the function deletes.
    """
    running, frame = set(), sys._getframe() if sys.version_info < (3, 13) else None
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    for each, _ in frames:
        is_function = each.f_code.co_flags & _OPTIMIZED
        if (is_function and id(each) not in running) or (not is_function and type(each.f_locals) is dict):
            yield each, each.f_locals


def name_function(frame: FrameType) -> str:
    """Return the name of a function, with its class from Python 3.11 on."""
    return str(getattr(frame.f_code, "co_qualname", frame.f_code.co_name)).rpartition("<locals>.")[2]


def name_line(frame: FrameType, line: int) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{line}"
