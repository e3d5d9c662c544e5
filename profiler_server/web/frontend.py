"""Static files, whose URLs change with their content, and Jinja templates, which escape all values and fail at an
unknown name.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import mimetypes
import threading
import time
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from profiler_server import format as figures
from profiler_server.analysis.operators.kernels import shorten_kernel
from profiler_server.format import fill_in
from profiler_server.web.links import Links

CHECK_INTERVAL_S = 1.0
LEAST_PACKED_BYTES = 100_000
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
    """The files below a folder, for static files or templates. All URLs of static files contain one version for the
    whole tree, because modules import each other by relative paths.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock = threading.Lock()
        self._signature: tuple[tuple[str, int, int], ...] = ()
        self._version = ""
        self._checked = float("-inf")
        self._packed: dict[Path, tuple[int, bytes]] = {}

    @property
    def version(self) -> str:
        """Return a hash of all static files, computed again after a file changed."""
        with self._lock:
            if time.monotonic() - self._checked > CHECK_INTERVAL_S:
                self._refresh()
                self._checked = time.monotonic()
            return self._version

    def find(self, path: str) -> Path | None:
        """Return the file at a path below the folder; None if it is missing or outside the folder."""
        if "\0" in path:
            return None
        try:
            wanted = (self.folder / path).resolve()
            return wanted if wanted.is_relative_to(self.folder) and wanted.is_file() else None
        except (OSError, RuntimeError):  # a name too long for the disk, or a cycle of links
            return None

    def pack(self, path: Path) -> bytes | None:
        """Return a large text file in gzip, packed once; None for any other file."""
        found = path.stat()
        if found.st_size < LEAST_PACKED_BYTES or path.suffix not in (".js", ".css"):
            return None
        with self._lock:
            stamp, packed = self._packed.get(path, (0, b""))
            if stamp != found.st_mtime_ns:
                packed = gzip.compress(path.read_bytes(), 5, mtime=0)
                self._packed[path] = (found.st_mtime_ns, packed)
            return packed

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


# Characters that end a script element, start a comment in one, or end a line in old JavaScript.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPES = str.maketrans(_UNSAFE)
_AGES = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


class Templates:
    """A renderer of templates by name. A name that the context does not have is an error, not an empty string."""

    def __init__(self, folder: Path, links: Links) -> None:
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals["links"] = links
        self.environment.globals["word"] = fill_in
        self.environment.filters.update(
            duration=figures.format_duration,
            gain=figures.say_gain,
            saving=figures.say_saving,
            difference=figures.format_difference,
            share=figures.format_share,
            bytes=figures.format_bytes,
            count=figures.format_count,
            ranks=figures.format_ranks,
            runs=figures.format_runs,
            shorten=figures.shorten_middle,
            kernel=shorten_kernel,
            json_block=json_block,
            age=format_age,
            clock=format_clock,
        )

    def render(self, template: str, **context: Any) -> str:
        return self.environment.get_template(template).render(context)


def read_fields(context: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without copying their values."""
    return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}


def json_block(value: Any) -> Markup:
    """Return a value as JSON that is safe inside `<script type="application/json">`; NaN becomes null."""
    text = msgspec.json.encode(value, enc_hook=_encode_array).decode()
    return Markup(text.translate(_ESCAPES))


def _encode_array(value: Any) -> Any:
    for method in ("tolist", "to_pylist"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def format_age(unix_ns: int | None, now_ns: int | None = None) -> str:
    """Return the time from `unix_ns` to `now_ns` (default: the present) as `2 min`; n/a if `unix_ns` is None, `now`
    below a minute."""
    if unix_ns is None:
        return figures.ABSENT
    seconds = ((now_ns or time.time_ns()) - unix_ns) / 1e9
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


def format_clock(unix_ns: int | None) -> str:
    """Return a moment as `2026-11-21 02:44:12 UTC`; n/a for None or a moment outside the calendar."""
    try:
        return figures.ABSENT if unix_ns is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_ns / 1e9))
    except (OverflowError, ValueError, OSError):
        return figures.ABSENT


def format_day(unix_ns: int) -> str:
    """Return a moment as `21 Nov`, in UTC; n/a outside the calendar."""
    try:
        return time.strftime("%d %b", time.gmtime(unix_ns / 1e9)).lstrip("0")
    except (OverflowError, ValueError, OSError):
        return figures.ABSENT
