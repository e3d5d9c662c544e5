"""Copy the files of a rank to a URL as they are made. A failing URL never changes the local files."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from collector.format.schema import layout
from collector.format.schema.errors import OutputError, StepscopeError
from collector.format.schema.layout import RANK_FILE
from collector.format.schema.manifest import RankManifest, RunManifest, decode_manifest, encode_manifest
from collector.format.schema.modes import restrict
from collector.format.schema.reading import read_small_text
from collector.format.schema.removal import scratch_folder
from collector.format.schema.writing import replacing
from collector.format.shifting import TIME, shift_manifest, shift_rows
from collector.storage.ledger import UploadLedger, list_files, list_missing, read_ledger, write_ledger
from collector.storage.urls import Remote, open_remote


def shift_file(source: Path, name: str, target: Path, shift_ns: int) -> None:
    """Copy `source`, a file of a rank, to `target`. `name` is its path in the rank. `shift_ns` is added to the start
    times in a table and to the times in a manifest."""
    if name == RANK_FILE:
        manifest = decode_manifest(RankManifest, read_small_text(source), RANK_FILE)
        target.write_text(encode_manifest(shift_manifest(manifest, shift_ns)), encoding="utf-8")
    elif source.suffix == ".parquet":
        _shift_table(source, target, shift_ns)
    else:
        shutil.copyfile(source, target)


def _shift_table(source: Path, target: Path, shift_ns: int) -> None:
    with pq.ParquetFile(source, pre_buffer=False) as file:
        schema = file.schema_arrow
        if TIME not in schema.names:
            shutil.copyfile(source, target)
            return
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            for group in range(file.num_row_groups):
                writer.write_table(shift_rows(file.read_row_group(group, use_threads=False), shift_ns))


_LEDGER_EVERY = 20


class RankUpload:
    """The upload of one rank to a URL. Each call of `upload` copies what is new; `ledger` is the state so far."""

    def __init__(self, rank_folder: Path, url: str) -> None:
        self._folder = rank_folder
        known = read_ledger(rank_folder)
        self.ledger = known if known is not None and known.url == url else UploadLedger(url)
        self._remote: Remote | None = None

    def upload(self, on_file: Callable[[str], None] = lambda name: None) -> None:
        """Copy the files that are new or have changed, the manifest last; call `on_file` with the name of each. Errors
        of the file system pass through."""
        # After a failure the state of the destination is unknown.
        remote, self._remote = self._remote or self.join(), None
        for number, (name, state) in enumerate(list_missing(self._folder, self.ledger).items(), 1):
            self._copy(remote, name)
            self.ledger.files[name] = state
            on_file(name)
            if number % _LEDGER_EVERY == 0:
                write_ledger(self._folder, self.ledger)
        write_ledger(self._folder, self.ledger)
        self._remote = remote

    def join(self) -> Remote:
        """Open the URL and return it. Write run.json if it is missing there, and drop ledger entries of files that are
        gone there."""
        self._remote = remote = open_remote(self.ledger.url)
        self.ledger.shift_ns = join_run(self._folder.parent.parent, remote)
        if self.ledger.files:
            there = self._list_there(remote)
            for name in [name for name in self.ledger.files if name not in there]:
                del self.ledger.files[name]
        return remote

    def _list_there(self, remote: Remote) -> set[str]:
        start = self._place(remote, "")
        try:
            found = remote.files.find(start.rstrip("/"))
        except FileNotFoundError:
            return set()
        return {str(path)[len(start) :] for path in found}

    def finish(self) -> None:
        """List the URL again, upload what is missing there, and remove files whose local ones were merged."""
        remote = self.join()
        if list_missing(self._folder, self.ledger):
            self.upload()
        there = list_files(self._folder)
        for name in [name for name in self.ledger.files if name not in there]:
            with contextlib.suppress(FileNotFoundError):
                remote.files.rm_file(self._place(remote, name))
            del self.ledger.files[name]
        self.ledger.problem, self.ledger.is_done = "", True
        write_ledger(self._folder, self.ledger)

    def _copy(self, remote: Remote, name: str) -> None:
        source = self._folder / name
        try:
            if not self.ledger.shift_ns:
                _put(remote, source, self._place(remote, name))
                return
            with scratch_folder("stepscope-upload-") as scratch:
                shifted = scratch / source.name
                shift_file(source, name, shifted, self.ledger.shift_ns)
                _put(remote, shifted, self._place(remote, name))
        except FileNotFoundError:
            if source.exists():
                raise  # the bucket is missing, not the file

    def _place(self, remote: Remote, name: str) -> str:
        return remote.join(f"{layout.PROFILER_FOLDER}/{self._folder.name}/{name}")


def _put(remote: Remote, source: Path, target: str) -> None:
    remote.make_parent(target)
    if not remote.is_local:
        remote.files.put_file(str(source), target)
        return
    # In a bucket a file appears only when it is complete. In a folder, readers would see an incomplete file.
    with replacing(Path(target)) as written, source.open("rb") as read:
        shutil.copyfileobj(read, written)


def join_run(run_path: Path, remote: Remote) -> int:
    """Write run.json to a URL, unless another host of the job was first. Return the ns to add to local times.

    Times at the URL count from the epoch of the first host, so other hosts must shift theirs. Raise OutputError if
    another run is at the URL.
    """
    text = read_small_text(layout.run_file(run_path))
    ours = decode_manifest(RunManifest, text, str(layout.run_file(run_path)))
    target = remote.join(f"{layout.PROFILER_FOLDER}/{layout.RUN_FILE}")
    theirs = _read_theirs(remote, target)
    if theirs is None:
        remote.make_parent(target)
        try:
            remote.files.pipe_file(target, text.encode(), mode="create")
        except (OSError, NotImplementedError):
            if _read_theirs(remote, target) is None:
                remote.files.pipe_file(target, text.encode())
        if remote.is_local:
            with contextlib.suppress(OSError):  # some mounts do not allow a change of modes
                restrict(Path(target))
        theirs = _read_theirs(remote, target) or ours
    # Compared without the name: a run is named after its folder, which differs at the URL of another host.
    same = replace(theirs, id=ours.id, name=ours.name) == ours
    of_one_job = bool(ours.launch_id) and (theirs.launch_id, theirs.world_size) == (ours.launch_id, ours.world_size)
    if not same and not of_one_job:
        raise OutputError(f"{remote.url} holds another run; choose another URL")
    return ours.epoch_unix_ns - theirs.epoch_unix_ns


def _read_theirs(remote: Remote, target: str) -> RunManifest | None:
    try:
        text = remote.files.cat_file(target)
    except FileNotFoundError:
        return None
    try:
        return decode_manifest(RunManifest, bytes(text).decode(), target)
    except (StepscopeError, UnicodeDecodeError):
        raise OutputError(
            f"{remote.url} holds another run, whose manifest cannot be read; choose another URL"
        ) from None
