"""Move the times of a rank to another epoch: the starts in its tables, and the times in its manifest."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.schema.manifest import RankManifest

TIME = "start_ns"
_OF_WINDOW, _OF_READING = ("start_ns", "end_ns"), ("read_start_ns", "read_end_ns")


def shift_rows(rows: pa.Table, by_ns: int) -> pa.Table:
    place = rows.schema.get_field_index(TIME)
    return rows.set_column(place, rows.schema.field(place), pc.add(rows[TIME], pa.scalar(by_ns, pa.int64())))


def shift_manifest(manifest: RankManifest, by_ns: int) -> RankManifest:
    windows = (
        replace(
            one,
            **{name: getattr(one, name) + by_ns for name in (*_OF_WINDOW, *(_OF_READING if one.read_end_ns else ()))},
        )
        for one in manifest.windows
    )
    until_ns = None if manifest.recorded_until_ns is None else manifest.recorded_until_ns + by_ns
    return replace(manifest, windows=tuple(windows), recorded_until_ns=until_ns)
