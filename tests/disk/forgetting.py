"""A disk in memory that forgets what was not synced: it takes the operations that were written down, and loses its power."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

Loss = Literal["all", "contents", "some"]
"""What of the unsynced is lost: all; contents, while every name has arrived; or, file by file and folder by folder, some."""


@dataclass(frozen=True)
class Operation:
    kind: str
    path: str
    other: str
    offset: int
    data: bytes


def read_operations(file: BinaryIO) -> Iterator[Operation]:
    """Yield the operations of a log."""
    while kind := file.readline().rstrip(b"\n").decode():
        path, other = (file.readline().rstrip(b"\n").decode() for _ in range(2))
        offset, size = int(file.readline()), int(file.readline())
        yield Operation(kind, path, other, offset, file.read(size))


@dataclass
class _File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


@dataclass
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)


class Disk:
    """What the processes see, and what is on the disk. `base` is there, and synced, from the beginning."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._root = _Folder()

    def apply(self, operation: Operation) -> None:
        """Do one operation, as it was done."""
        kind, path = operation.kind, operation.path
        if kind == "note":
            return
        if kind == "sync":
            node = self._find(path)
            if isinstance(node, _File):
                node.synced = bytes(node.data)
            else:
                node.synced = dict(node.names)
            return
        folder, name = self._parent(path)
        if kind in ("create", "mkdir"):
            folder.names[name] = _File() if kind == "create" else _Folder()
        elif kind == "remove":
            del folder.names[name]
        elif kind in ("rename", "link"):
            target, new = self._parent(operation.other)
            target.names[new] = folder.names[name]
            if kind == "rename":
                del folder.names[name]
        else:
            self._change(folder.names[name], operation)

    def lose_power(self, loss: Loss, target: Path, seed: int = 0) -> None:
        """Write what is left after a loss of power to a folder of the real disk."""
        self._write(self._root, target, loss, random.Random(seed))

    def _change(self, node: _File | _Folder, operation: Operation) -> None:
        assert isinstance(node, _File)
        if operation.kind == "truncate":
            node.data.clear()
        end = operation.offset + len(operation.data)
        if len(node.data) < end:
            node.data.extend(bytes(end - len(node.data)))
        if operation.kind == "write":
            node.data[operation.offset : end] = operation.data

    def _write(self, folder: _Folder, target: Path, loss: Loss, chance: random.Random) -> None:
        target.mkdir(parents=True, exist_ok=True)
        keeps = loss == "contents" or (loss == "some" and chance.random() < 0.5)
        for name, node in (folder.names if keeps else folder.synced).items():
            if isinstance(node, _Folder):
                self._write(node, target / name, loss, chance)
            else:
                (target / name).write_bytes(_keep_part(node, loss, chance))

    def _parent(self, path: str) -> tuple[_Folder, str]:
        head, _, name = path.rpartition("/")
        folder = self._find(head)
        assert isinstance(folder, _Folder)
        return folder, name

    def _find(self, path: str) -> _File | _Folder:
        node: _File | _Folder = self._root
        for name in path[len(self._base) :].strip("/").split("/"):
            if name:
                assert isinstance(node, _Folder)
                node = node.names[name]
        return node


def _keep_part(file: _File, loss: Loss, chance: random.Random) -> bytes:
    """Return what is left of a file: what was synced, or, of some, blocks of what has been written since."""
    if loss != "some" or chance.random() < 0.4:
        return file.synced
    kept = bytearray(file.synced.ljust(len(file.data), b"\0")[: len(file.data)])
    for start in range(0, len(file.data), 4096):
        if chance.random() < 0.5:
            kept[start : start + 4096] = file.data[start : start + 4096]
    return bytes(kept)
