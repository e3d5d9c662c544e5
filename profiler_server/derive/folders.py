"""Where the files of a cache lie: beside the tables of their rank, or in a private folder where that cannot be written."""

from __future__ import annotations

import os
import stat
import tempfile
from hashlib import blake2b
from pathlib import Path

from collector.format.run import RankRun
from collector.format.schema.inside import RefusedError, is_plain_folder
from collector.format.schema.removal import make_folder
from collector.format.stored_files import is_plain


def list_roots(rank: RankRun, name: str) -> list[Path]:
    """Return the folders of that hidden name in which something derived from a rank may lie, the best first.

    Arrow, which writes the timelines, takes no folder whose name is no UTF-8.
    """
    digest = blake2b(os.fsencode(rank.folder), digest_size=8).hexdigest()
    beside = [rank.folder / name] if is_plain(rank.folder) else []
    return [*beside, *(private / f"{digest}{name}" for private in find_private())]


def find_private() -> list[Path]:
    """Return the private folder of this user in the temporary directory; none if others can write there."""
    private = _find_private()
    return [private] if _is_ours(private) else []


def make_root(root: Path) -> None:
    """Make the folder. Raises OSError; PermissionError if it would lie where others can write, RefusedError for a link."""
    private = _find_private()
    if private in (root, root.parent):
        private.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(private):
            raise PermissionError(f"{private} is not a private folder of this user")
    try:
        make_folder(root)
    except FileExistsError:
        if not is_plain_folder(root):
            raise RefusedError(f"{root} is a link or a file, not a folder of caches; remove it") from None


def _find_private() -> Path:
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"stepscope-{owner}"


def _is_ours(private: Path) -> bool:
    """Say whether a folder of a shared directory is ours and nobody else's to write, or not there yet."""
    try:
        found = os.lstat(private)
    except FileNotFoundError:
        return True
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & 0o022
