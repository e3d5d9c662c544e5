"""A local folder that mirrors a base directory behind a URL. Data is fetched only when it is read.

Manifests are copied when they change. A table is an empty file with the right size and time until it is read. Then the
end of the file (with the row count) or the whole file is fetched. Size and time stay the same, so results that are kept
until a file changes stay valid.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from collector.edge import Edge
from collector.format import parts, stored_files
from collector.format.schema import layout
from collector.format.schema.errors import UsageError
from collector.format.schema.tables import TABLES
from collector.storage.urls import Remote, explain, open_remote
from profiler_server.derive.background import Background
from profiler_server.derive.records import find_private, make_root
from profiler_server.derive.store import find_store
from profiler_server.store.mirrored_files import MirroredFiles, State

LIST_S = 10.0
"""Least seconds between two listings of the URL; more if a listing takes long."""
LISTS_APART = 5.0
MOST_FILES = 500_000
DEEPEST = 16
_MANIFESTS = (layout.RUN_FILE, layout.RANK_FILE)
_MOST_MANIFEST_BYTES = 16 << 20
_FETCHED_AT_ONCE = 256
_TABLE_FILES = frozenset(layout.table_file(Path(), table).name for table in TABLES)
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")
_log = logging.getLogger("stepscope")


def open_mirror(url: str) -> Mirror:
    """Return the mirror of a URL, after it was listed once. Raises UsageError if this first listing fails."""
    remote = open_remote(url)
    digest = blake2b(remote.url.encode(), digest_size=8).hexdigest()
    places = find_private()
    if not places:
        raise UsageError(f"{url} needs a private folder in the temporary directory, which others can write; set TMPDIR")
    root = places[0] / f"{digest}.mirror"
    make_root(root)
    root = root.resolve()
    mirrors = find_store().part(_Mirrors)
    if root not in mirrors:
        mirror = Mirror(remote, root)
        mirror.list_now()
        if mirror.problem and mirror.was_never_listed:
            raise UsageError(f"{url} cannot be listed: {mirror.problem}")
        mirrors[root] = mirror
        stored_files.LENDERS.append(mirror.files.lend)
    return mirrors[root]


def find_mirror(folder: Path) -> Mirror | None:
    """Return the mirror that contains a folder; None for a local folder that is in no mirror."""
    return next((mirror for root, mirror in find_store().part(_Mirrors).items() if folder.is_relative_to(root)), None)


class Mirror:
    """A URL and the local folder that mirrors it. Several threads may use one mirror."""

    def __init__(self, remote: Remote, root: Path) -> None:
        self.url, self.root = remote.url, root
        self.problem = ""
        self.was_never_listed = True
        self.files = MirroredFiles(remote, root)
        self._remote = remote
        self._lock = threading.Lock()
        self._left_out: dict[str, str] = {}
        self._listed_s = self._took_s = 0.0
        self._background = Background(head_start=False)

    def refresh(self) -> None:
        """List the URL again in the background, unless that was done less than LIST_S ago (more for a slow listing)."""
        if time.monotonic() - self._listed_s > max(LIST_S, LISTS_APART * self._took_s):
            self._background.start("list", self.list_now)

    def list_now(self) -> None:
        """Update the folder from the URL. If that fails, `problem` is the reason, and files that were not yet updated
        stay as they are.
        """
        with self._lock, Edge(self._fail):
            begun_s = time.monotonic()
            known, self._left_out = self._left_out, {}
            self._bring_up_to_date(self._leave_out_covered(self._list()))
            self.problem, self.was_never_listed = "", False
            for name, why in self._left_out.items():
                if name not in known:
                    _log.warning("stepscope: %s/%s is left out: %s", self.url, name, why)
            self._took_s = time.monotonic() - begun_s
        self._listed_s = time.monotonic()

    @property
    def cut(self) -> str:
        """Return a sentence if the URL does not answer, or if some of its files cannot be shown; "" if all is well."""
        if self.problem:
            return f"{self.url} does not answer: {self.problem}. What was there before is shown."
        for name, why in self._left_out.items():
            others = f", and {len(self._left_out) - 1:,} more" if len(self._left_out) > 1 else ""
            return f"Left out at {self.url}: {name} ({why}){others}."
        return ""

    def _fail(self, error: Exception) -> None:
        self.problem = explain(error)

    def _list(self) -> dict[str, State]:
        start = len(self._remote.path) + 1
        try:
            found: Mapping[str, Any] = self._remote.files.find(self._remote.path, detail=True)
        except FileNotFoundError:
            if self.was_never_listed:
                raise
            found = {}
        if not found and not self._remote.files.exists(self._remote.path):
            raise FileNotFoundError(f"there is nothing at {self.url}")
        names = {str(path)[start:]: info for path, info in found.items()}
        kept = {name: read_state(info) for name, info in names.items() if is_of_run(name) and not info.get("islink")}
        if len(kept) > MOST_FILES:
            raise UsageError(f"there are more than {MOST_FILES:,} files; serve a folder further down")
        return kept

    def _leave_out_covered(self, there: dict[str, State]) -> dict[str, State]:
        """Return the files except those below a path that is itself a file. Buckets can hold both, folders cannot."""
        kept = {}
        for name, state in there.items():
            above = name.rpartition("/")[0]
            while above and above not in there:
                above = above.rpartition("/")[0]
            if above:
                self._left_out[name] = f"{above} is a file"
            else:
                kept[name] = state
        return kept

    def _bring_up_to_date(self, there: dict[str, State]) -> None:
        changed = {name: state for name, state in there.items() if self.files.states.get(name) != state}
        manifests = [name for name in changed if name.rpartition("/")[2] in _MANIFESTS]
        for name, state in changed.items():
            if name not in manifests:
                self._try(name, partial(self.files.place, name, state))
        # The manifest of a run comes last, because it makes a folder a run.
        manifests.sort(key=lambda name: name.endswith(layout.RUN_FILE))
        for first in range(0, len(manifests), _FETCHED_AT_ONCE):
            self._fetch({name: changed[name] for name in manifests[first : first + _FETCHED_AT_ONCE]})
        for name in [name for name in self.files.states if name not in there]:
            self._try(name, partial(self.files.remove, name))

    def _try(self, name: str, action: Callable[[], None]) -> None:
        """Run an action on one file. If it fails, note the file as left out, and go on."""
        with Edge(lambda error: self._left_out.update({name: explain(error)})):
            action()

    def _fetch(self, manifests: Mapping[str, State]) -> None:
        small = [name for name, state in manifests.items() if state.size <= _MOST_MANIFEST_BYTES]
        if not small:
            return
        # A network file system requests several names at the same time, if it gets them in one call.
        got = self._remote.files.cat([self._remote.join(name) for name in small], on_error="return")
        got = {path: data for path, data in got.items() if not isinstance(data, FileNotFoundError)}
        failures = [data for data in got.values() if isinstance(data, Exception)]
        if failures and len(failures) == len(got) > 1:
            raise failures[0]
        for path, data in got.items():
            name = str(path)[len(self._remote.path) + 1 :]
            if isinstance(data, Exception):
                self._left_out[name] = explain(data)
            elif name in manifests:
                self._try(name, partial(self.files.write, name, manifests[name], bytes(data)))


class _Mirrors(dict[Path, Mirror]):
    """The open mirrors, by folder."""


def is_of_run(name: str) -> bool:
    """Return whether a name in the bucket has exactly the form of a run's file. Other programs may also have written to
    the bucket.
    """
    pieces = name.split("/")
    if len(pieces) > DEEPEST or _ODD.search(name):
        return False
    if any(not piece or piece.startswith(".") or len(piece.encode("utf-8", "replace")) > 255 for piece in pieces):
        return False
    match pieces:
        case [*_, layout.PROFILER_FOLDER, layout.RUN_FILE]:
            return True
        case [*_, layout.PROFILER_FOLDER, rank, file] if layout.is_rank_name(rank):
            return file == layout.RANK_FILE or file in _TABLE_FILES
        case [*_, layout.PROFILER_FOLDER, rank, table, part] if layout.is_rank_name(rank):
            return table in TABLES and parts.PART_NAME.fullmatch(part) is not None
    return False


def read_state(info: Mapping[str, Any]) -> State:
    """Return size and time of a remote file from `info`, the fields that its file system gives.

    The digits of the time below a second are made from the file's entity tag. So two contents of the same size and
    second still differ in `State`.
    """
    moment = next(
        (info[key] for key in ("LastModified", "mtime", "updated", "last_modified", "created") if info.get(key)), 0
    )
    seconds = moment.timestamp() if isinstance(moment, datetime) else _read_seconds(moment)
    tag = str(next((info[key] for key in ("ETag", "etag", "md5Hash", "mtime") if info.get(key)), moment))
    below_s = int.from_bytes(blake2b(tag.encode(), digest_size=4).digest(), "big") % 10**9
    return State(int(info.get("size") or 0), int(seconds) * 10**9 + below_s)


def _read_seconds(moment: Any) -> float:
    if isinstance(moment, (int, float)):
        return float(moment)
    try:
        return datetime.fromisoformat(str(moment).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
