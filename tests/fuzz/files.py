"""A file of a run that is not what it should be: other content, or no file at all."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORMS = (*("file",) * 6, "link", "loop", "endless", "folder", "pipe", "missing", "vanishes")
_ELSEWHERE = ".elsewhere"


def choose_form(chance: random.Random) -> str:
    return chance.choice(FORMS) if chance.random() < 0.15 else "file"


@contextmanager
def replaced(path: Path, form: str, content: bytes) -> Iterator[None]:
    """Put content of that form in the place of a file while the block runs; afterwards the file is there as it was."""
    aside = path.with_name(f".{path.name}.aside")
    os.rename(path, aside)
    timer = put(path, form, content)
    try:
        yield
    finally:
        if timer is not None:
            timer.join()
        remove(path)
        remove(path.with_name(_ELSEWHERE))
        os.rename(aside, path)


def put(path: Path, form: str, content: bytes) -> threading.Timer | None:
    """Put content at a free path in a form. A timer is returned for one that soon vanishes."""
    elsewhere = path.with_name(_ELSEWHERE)
    if form == "link":
        elsewhere.write_bytes(content)
        path.symlink_to(elsewhere)
    elif form == "loop":
        path.symlink_to(path)
    elif form == "endless":
        path.symlink_to("/dev/zero")
    elif form == "folder":
        path.mkdir()
        (path / "inside").write_bytes(content[:100])
    elif form == "pipe":
        os.mkfifo(path)
    elif form != "missing":
        path.write_bytes(content)
    if form != "vanishes":
        return None
    timer = threading.Timer(len(content) % 20 / 1000, lambda: path.unlink(missing_ok=True))
    timer.start()
    return timer


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def take_stock(folder: Path, *left_out: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file below a folder, but for those below some others."""
    found = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(root, name) not in left_out]
        for name in names:
            status = os.lstat(Path(root, name))
            found[os.path.join(root, name)] = (status.st_size, status.st_mtime_ns)
    return found
