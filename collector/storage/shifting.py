"""Move the times of a file to the epoch of another host of the same job."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.format.schema.layout import RANK_FILE
from collector.format.schema.manifest import RankManifest, decode_manifest, encode_manifest
from collector.format.schema.reading import read_small_text

_TIME = "start_ns"


def shift_file(source: Path, name: str, target: Path, shift_ns: int) -> None:
    """Write a table or a manifest with its times moved, a row group at a time."""
    if name == RANK_FILE:
        target.write_text(shift_manifest(read_small_text(source), shift_ns), encoding="utf-8")
    elif source.suffix == ".parquet":
        _shift_table(source, target, shift_ns)
    else:
        shutil.copyfile(source, target)


def shift_manifest(text: str, shift_ns: int) -> str:
    """Return a rank's manifest with the times of its windows, and of what is recorded, moved."""
    manifest = decode_manifest(RankManifest, text, RANK_FILE)
    windows = (
        replace(window, start_ns=window.start_ns + shift_ns, end_ns=window.end_ns + shift_ns)
        for window in manifest.windows
    )
    until_ns = None if manifest.recorded_until_ns is None else manifest.recorded_until_ns + shift_ns
    return encode_manifest(replace(manifest, windows=tuple(windows), recorded_until_ns=until_ns))


def _shift_table(source: Path, target: Path, shift_ns: int) -> None:
    with pq.ParquetFile(source, pre_buffer=False) as file:
        schema = file.schema_arrow
        if _TIME not in schema.names:
            shutil.copyfile(source, target)
            return
        place = schema.get_field_index(_TIME)
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, use_threads=False)
                moved = pc.add(rows[_TIME], pa.scalar(shift_ns, pa.int64()))
                writer.write_table(rows.set_column(place, schema.field(place), moved))
