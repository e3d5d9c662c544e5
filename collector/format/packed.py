"""A whole run in one file, `<run>.stepscope`: a zip of its manifests and tables, stored as they lie in its folder.
Earlier attempts of its job are in it, too.

Our packs are never compressed, so that what a pack unpacks to is never larger than the pack. Packs come from anywhere:
a file that is not exactly of this form is refused before anything of it is written.
"""

from __future__ import annotations

import atexit
import io
import os
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from collector.format import parts
from collector.format.attempts import SET_ASIDE, list_attempts
from collector.format.carried import MOST_ROWS, check_manifest
from collector.format.run import Run
from collector.format.schema import layout
from collector.format.schema.errors import NewerSchemaError, RunError, RunNotFoundError, TableBrokenError
from collector.format.schema.inside import open_inside
from collector.format.schema.removal import ensure_folder, make_folder, make_scratch
from collector.format.schema.tables import TABLES
from collector.format.schema.writing import replacing
from collector.format.stored_files import borrow, name_damage, open_file

SUFFIX = ".stepscope"
MOST_BYTES = 32 << 30
_MOST_LISTED_BYTES = 32 << 20
"""The greatest size of the list of files in a pack: that of 300,000 files."""
_VALUE_BYTES = 8
_MOST_ROWS_PER_BYTE = 4
"""Real tables stay below 1: each row has a time or a sum of its own."""
_RUN_FILE = f"{layout.PROFILER_FOLDER}/{layout.RUN_FILE}"
_TABLE = f"(?:{'|'.join(TABLES)})"
_NAME = re.compile(
    rf"(?P<of>(?:{layout.EARLIER_FOLDER}/{SET_ASIDE.pattern}/)?){layout.PROFILER_FOLDER}/(?:{layout.RUN_FILE}|"
    rf"rank_(?:0|[1-9][0-9]{{0,6}})/(?:{layout.RANK_FILE}|{_TABLE}\.parquet|{_TABLE}/{parts.PART_NAME.pattern}))"
)


def is_pack_name(name: str) -> bool:
    return name.lower().endswith(SUFFIX)


def write_pack(run: Run, path: Path) -> int:
    """Write a run to one file and return the number of files in it. The file appears whole or not at all.

    Raises RunError for a run that still records, that `recover` must complete first, or that is damaged. OSError passes
    through.
    """
    run.rank()  # raises an error where there is none
    earlier = [Run(each.path) for each in list_attempts(run.path) if run.path in each.path.parents]
    files = [file for each in (run, *earlier) for file in _list_files(each)]
    _check_runs((run, *earlier), MOST_BYTES)
    with replacing(path) as sink, zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as pack:
        for file in files:
            borrow(file)
            entry = zipfile.ZipInfo(file.relative_to(run.path).as_posix())
            entry.external_attr = (stat.S_IFREG | 0o600) << 16
            with open(file, "rb", opener=open_inside) as source, pack.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    return len(files)


def _list_files(run: Run) -> list[Path]:
    if run.state == "recording":
        raise RunError(f"{run.path} still records; pack it when it has ended")
    files = [layout.run_file(run.path)]
    for number in run.ranks:
        rank = run.read_rank(number)
        if rank.state == "crashed" and not rank.is_recovered and layout.events_path(rank.folder).is_dir():
            raise RunError(
                f"{run.path} was cut off; first run `{layout.spell_recovery(layout.rank_file(run.path, 0))}`"
            )
        files += [
            layout.rank_file(run.path, number),
            *(f for name in TABLES for f in parts.find_files(rank.folder, name)),
        ]
    return files


def open_pack(path: Path) -> Path:
    """Unpack a run into a private temporary folder, which is removed when Python ends, and return the run's directory.

    Raises RunNotFoundError for a file that is no pack, and as `unpack` does.
    """
    if not is_pack_name(path.name):
        raise RunNotFoundError(
            f"{path} is a file and no run; `stepscope import {path.name} --summary-base-dir runs` makes a run of a trace"
        )
    try:
        scratch, owner = make_scratch(), os.getpid()
        atexit.register(lambda: scratch.remove() if os.getpid() == owner else None)
        folder = scratch.path / (path.name[: -len(SUFFIX)] or "run")
        make_folder(folder)
        unpack(path, folder)
    except OSError as error:
        raise RunError(f"{path} cannot be unpacked ({error.strerror or error})") from None
    return folder


def unpack(path: Path, folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Write the run in a pack into a folder that is empty, and check its manifests and tables.

    Raises TableBrokenError for a file that is no pack or damaged, or whose tables take more than `most_bytes` in
    memory; NewerSchemaError for a run of a newer version. OSError means that the folder cannot be written.
    """
    with _explained(path), _Source(path) as source, zipfile.ZipFile(source) as pack:
        entries = pack.infolist()
        _check_entries(entries, source.seek(0, io.SEEK_END))
        for entry in entries:
            target = folder / entry.filename
            ensure_folder(target.parent)
            with pack.open(entry) as packed, open(target, "xb", opener=open_inside) as file:
                shutil.copyfileobj(packed, file, 1 << 20)
    try:
        _check_runs([Run(folder / of) for of in dict.fromkeys(_find_place(entry) for entry in entries)], most_bytes)
    except RunError as error:
        kind = NewerSchemaError if isinstance(error, NewerSchemaError) else TableBrokenError
        raise kind(str(error).replace(f"{folder}{os.sep}", f"{path}: ")) from None


class _Source(io.FileIO):
    """A file whose damage is no error of the disk, and of which little is read at once: a pack may claim any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size if size is not None and 0 <= size < _MOST_LISTED_BYTES else _MOST_LISTED_BYTES)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return super().seek(offset, whence)
        except OSError:
            raise _ForeignError("it ends too early") from None


class _ForeignError(Exception):
    """The reason why a file is no pack of ours."""


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    # What `zipfile` raises on damaged input is of many types.
    damage = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError, struct.error)
    try:
        yield
    except (_ForeignError, *damage) as error:
        what = f"{error}"[:200] or "it is damaged"
        raise TableBrokenError(f"{path} is no packed run ({what}); `stepscope pack RUN` makes one") from None


def _check_entries(entries: Sequence[zipfile.ZipInfo], size_bytes: int) -> None:
    names = {entry.filename for entry in entries}
    odd = next((each.filename for each in entries if not _NAME.fullmatch(each.filename)), None)
    if odd is not None:
        raise _ForeignError(f"it holds {odd[:80]!r}, which is no file of a run")
    if len(names) < len(entries):
        raise _ForeignError("it holds a file twice")
    missing = {_RUN_FILE, *(f"{_find_place(entry)}{_RUN_FILE}" for entry in entries)} - names
    if missing:
        raise _ForeignError(f"it holds no {min(missing)}")
    for entry in entries:
        mode = entry.external_attr >> 16
        if entry.flag_bits & 1 or entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise _ForeignError(f"{entry.filename} is compressed or encrypted")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise _ForeignError(f"{entry.filename} is a link or no file")
    if sum(entry.file_size for entry in entries) > size_bytes:
        raise _ForeignError("its files are together larger than itself")


def _find_place(entry: zipfile.ZipInfo) -> str:
    """Return "" for a file of the run itself, and the folder of the attempt for one of an earlier attempt."""
    found = _NAME.fullmatch(entry.filename)
    return found["of"] if found else ""


def _check_runs(runs: Sequence[Run], most_bytes: int) -> None:
    if sum(map(_check_run, runs)) > most_bytes:
        raise TableBrokenError(
            f"{runs[0].path}{os.sep} unpacks to more than {most_bytes / (1 << 30):,.3g} GiB, the limit"
        )


def _check_run(run: Run) -> int:
    """Return how many bytes the tables of a run take in memory, at most."""
    run.manifest  # noqa: B018  raises what is wrong with it
    total = 0
    for number in run.ranks:
        rank = run.read_rank(number)
        file = layout.rank_file(run.path, number)
        try:
            check_manifest(rank.manifest)
        except ValueError as error:
            raise TableBrokenError(f"{file} is damaged: {error}") from None
        if rank.manifest.rank != number:
            raise TableBrokenError(f"{file} is of rank {rank.manifest.rank}")
        for name, table in TABLES.items():
            rows = sum(_count_rows(part, name) for part in parts.find_files(rank.folder, name))
            total += rows * _VALUE_BYTES * len(table.columns)
    return total


def _count_rows(file: Path, table: str) -> int:
    """Return the rows of a file that holds what its table declares, and no more rows than its size can hold."""
    try:
        rows = int(open_file(file, table, [column.name for column in TABLES[table].columns]).metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise TableBrokenError(name_damage(file, f"{error}".partition("\n")[0][:100])) from None
    if rows > max(MOST_ROWS, _MOST_ROWS_PER_BYTE * file.stat().st_size):
        raise TableBrokenError(name_damage(file, f"it claims {rows:,} rows"))
    return rows
