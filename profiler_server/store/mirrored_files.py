"""The files of a mirror: empty, with only their end, or whole. A limit bounds the total size of the whole files.

A file that is empty, or has only its end, is marked by the sticky bit in its mode.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from pathlib import Path
from typing import BinaryIO, NamedTuple

from collector.edge import Edge
from collector.format.schema.errors import TableMissingError
from collector.format.schema.removal import remove_empty, remove_file
from collector.format.schema.writing import replacing
from collector.storage.urls import Remote, explain

MOST_WHOLE_BYTES = 4 << 30
"""Bytes that whole files may take together. Above this limit the least recently read files become empty again."""
SMALL_BYTES = 1 << 20
"""Bytes below which a file is fetched whole when only its end is needed."""
END_BYTES = 256 << 10
_EMPTY = 0o600 | stat.S_ISVTX
_WITH_END = 0o700 | stat.S_ISVTX
_WHOLE = 0o600
_FOOTER_BYTES = 8


class State(NamedTuple):
    size: int
    changed_ns: int


class MirroredFiles:
    """The files below `root`, which can be created, fetched and dropped. Several threads may use one object."""

    def __init__(self, remote: Remote, root: Path, most_bytes: int = MOST_WHOLE_BYTES) -> None:
        self._remote, self._root, self._most_bytes = remote, root, most_bytes
        self._lock = threading.Lock()
        self._fetching: dict[Path, threading.Lock] = {}
        self._whole: OrderedDict[Path, int] = OrderedDict()
        self.states: dict[str, State] = {}
        self._take_over()

    def place(self, name: str, state: State) -> None:
        """Create an empty file for a table. The file has the size and the time of the table at the URL."""
        path = self._make_parent(name)
        with self._lock:
            self._write_empty(path, state)
        self.states[name] = state

    def write(self, name: str, state: State, data: bytes) -> None:
        """Write a small file with its whole content."""
        with replacing(self._make_parent(name)) as file:
            file.write(data)
            _finish(file, state, _WHOLE)
        self.states[name] = State(len(data), state.changed_ns) if len(data) != state.size else state

    def remove(self, name: str) -> None:
        """Remove a file that no longer exists at the URL, and then each folder that became empty."""
        path = self._root / name
        remove_file(path, self._root)
        with self._lock:
            self._whole.pop(path, None)
        self.states.pop(name, None)
        for parent in path.parents:
            if parent == self._root or not remove_empty(parent, self._root):
                return

    def lend(self, path: Path, end_only: bool) -> None:
        """Fetch a file before it is read, or only its end if `end_only`. A path outside of the mirror is ignored.

        Raises TableMissingError if the bytes cannot be fetched. A file that no longer exists at the URL is no error.
        """
        if not path.is_relative_to(self._root):
            return
        with self._lock:
            fetching = self._fetching.setdefault(path, threading.Lock())
        failures: list[Exception] = []
        with fetching, Edge(failures.append):
            self._fetch(path, end_only)
        with self._lock:
            self._fetching.pop(path, None)
        if failures and not isinstance(failures[0], FileNotFoundError):
            where = f"{self._remote.url}/{path.relative_to(self._root).as_posix()}"
            raise TableMissingError(f"{where} cannot be fetched: {explain(failures[0])}; reload when it answers")

    def _fetch(self, path: Path, end_only: bool) -> None:
        found = os.lstat(path)
        state = State(found.st_size, found.st_mtime_ns)
        if not found.st_mode & stat.S_ISVTX:
            self._note(path, state.size)
            return
        place = self._remote.join(path.relative_to(self._root).as_posix())
        has_end = bool(found.st_mode & stat.S_IXUSR)
        if end_only and state.size > SMALL_BYTES and (has_end or self._fetch_end(path, place, state)):
            return
        with replacing(path) as file:
            partial = Path(file.name)
            self._remote.files.get_file(place, str(partial))
            if partial.stat().st_size != state.size:
                raise OSError("it has changed meanwhile")
            with partial.open("r+b") as written:
                _finish(written, state, _WHOLE)
        self._note(path, state.size)

    def _fetch_end(self, path: Path, place: str, state: State) -> bool:
        """Fetch the end of a table. Return whether the end holds the whole footer, and with it the row count."""
        data = self._remote.files.cat_file(place, start=max(state.size - END_BYTES, 0), end=state.size)
        if int.from_bytes(data[-_FOOTER_BYTES:-4], "little") + _FOOTER_BYTES > len(data):
            return False
        with replacing(path) as file:
            file.truncate(state.size)
            file.seek(state.size - len(data))
            file.write(data)
            _finish(file, state, _WITH_END)
        return True

    def _note(self, path: Path, size: int) -> None:
        """Mark a whole file as used just now. If the whole files exceed their limit, empty those unused for longest."""
        with self._lock:
            self._whole[path] = size
            self._whole.move_to_end(path)
            while sum(self._whole.values()) > self._most_bytes and len(self._whole) > 1:
                oldest, _ = self._whole.popitem(last=False)
                with Edge(lambda error: None):
                    found = os.lstat(oldest)
                    self._write_empty(oldest, State(found.st_size, found.st_mtime_ns))

    def _write_empty(self, path: Path, state: State) -> None:
        with replacing(path) as file:
            file.truncate(state.size)
            _finish(file, state, _EMPTY)
        self._whole.pop(path, None)

    def _make_parent(self, name: str) -> Path:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _take_over(self) -> None:
        """Take over the files of an earlier server. The next listing replaces those that differ from the URL."""
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder, name)
                if name.startswith(".") or "/." in folder.removeprefix(str(self._root)):
                    continue
                found = os.lstat(path)
                self.states[path.relative_to(self._root).as_posix()] = State(found.st_size, found.st_mtime_ns)
                if name.endswith(".parquet") and not found.st_mode & stat.S_ISVTX:
                    self._whole[path] = found.st_size


def _finish(file: BinaryIO, state: State, mode: int) -> None:
    """Give an open file its mode and its time, before it is renamed to its final name."""
    file.flush()
    os.fchmod(file.fileno(), mode)
    os.utime(file.fileno(), ns=(state.changed_ns, state.changed_ns))
