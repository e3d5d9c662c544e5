"""Static files under addresses that change with their content, so that a browser may keep them for ever."""

from __future__ import annotations

import hashlib
import mimetypes
import threading
import time
from pathlib import Path

CHECK_INTERVAL_S = 1.0
# Debian's mime table is optional and Windows' registry can be wrong: modules must have a script type to run at all.
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".wasm": "application/wasm",
}


def find_frontend() -> Path:
    """Return the folder with `templates` and `static`: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "frontend"
    return inside if inside.is_dir() else package.parent / "frontend"


class StaticFiles:
    """One version for the whole tree: modules import each other by relative paths, so they must share a prefix."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock = threading.Lock()
        self._signature: tuple[tuple[str, int, int], ...] = ()
        self._version = ""
        self._checked = float("-inf")

    @property
    def version(self) -> str:
        """Return the hash of all static files, read again when one of them changed."""
        with self._lock:
            if time.monotonic() - self._checked > CHECK_INTERVAL_S:
                self._refresh()
                self._checked = time.monotonic()
            return self._version

    def find(self, path: str) -> Path | None:
        """Return the file of that path below the folder, None if there is none or it lies outside."""
        if "\0" in path:
            return None
        try:
            wanted = (self.folder / path).resolve()
            return wanted if wanted.is_relative_to(self.folder) and wanted.is_file() else None
        except (OSError, RuntimeError):  # a name too long for the disk, or links that run in a circle
            return None

    def _refresh(self) -> None:
        files = sorted(p for p in self.folder.rglob("*") if p.is_file())
        signature = tuple((str(p), (s := p.stat()).st_mtime_ns, s.st_size) for p in files)
        if signature == self._signature:
            return
        digest = hashlib.sha256()
        for path in files:
            digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        self._signature, self._version = signature, digest.hexdigest()[:16]


def media_type(path: Path) -> str:
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
