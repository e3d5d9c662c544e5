"""The source lines of the user's code in which most samples of the training thread lie, and checksums of the files of
these lines.

The files are read during the run, while they are still the files that the run uses.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from collector.frames.files import LIBRARIES

MOST_LINES, MOST_CALLERS = 40, 20
LONGEST_TEXT = 120
_MOST_BYTES = 1 << 20
_MOST_SUMS = 4_000
"""Most lines of all files together that get a checksum: rank.json holds the checksums and is rewritten often."""
Place = tuple[str, int]
"""File and line number."""


class SourceLines:
    """A reader of source lines. A file that changed since is not read: its lines may not be those that ran."""

    def __init__(self) -> None:
        self._started = time.time()
        self._files: dict[str, list[str]] = {}

    def read(self, samples: Mapping[Place, int], callers: Mapping[Place, int]) -> dict[str, dict[str, str]]:
        """Return the text of the lines with most `samples`, and of the lines that call these most often, by file and
        line number (as text, for JSON)."""
        found: dict[str, dict[str, str]] = {}
        most = Counter(samples).most_common(MOST_LINES) + Counter(callers).most_common(MOST_CALLERS)
        for (file, line), _ in most:
            text = self._find(file, line)
            if text:
                found.setdefault(file, {})[str(line)] = text
        return found

    def sum_up(self) -> dict[str, str]:
        """Map files read to checksums of their lines, four hexadecimal digits each, up to `_MOST_SUMS` lines in all."""
        sums: dict[str, str] = {}
        left = _MOST_SUMS
        for file, lines in self._files.items():
            if 0 < len(lines) <= left:
                left -= len(lines)
                sums[file] = "".join(f"{zlib.crc32(line.rstrip().encode()) & 0xFFFF:04x}" for line in lines)
        return sums

    def _find(self, file: str, line: int) -> str:
        if file not in self._files:
            self._files[file] = self._read_file(file)
        lines = self._files[file]
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        return "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_TEXT])

    def _read_file(self, file: str) -> list[str]:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a named pipe must not hold us up
        except (OSError, ValueError):
            return []
        with os.fdopen(descriptor, "rb") as opened:
            about = os.fstat(opened.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES or about.st_mtime > self._started:
                return []
            return opened.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()


def list_own_places(stack: str) -> Iterator[Place]:
    """Yield the user's lines in the text of a stack, the innermost first."""
    for frame in reversed(stack.splitlines()):
        file, _, line = frame.partition(" (")[2].removesuffix(")").rpartition(":")
        if line.isdigit() and Path(file).suffix == ".py" and not any(part in file for part in LIBRARIES):
            yield file, int(line)
