"""Samples of queues, as readers want them: one for each request that brought a batch.

Version 0.1.0 also sampled at the last request of an epoch, which only finds out that there is no more, so every epoch
had one empty queue too many. Its files have no column `batch`; there a sample counts if `fetches` has its request.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.arrow_schemas import arrow_schema
from collector.format.parts import find_files, read_table
from collector.format.stored_files import open_file

_REQUEST = ("loader", "start_ns")


def read_requests(
    rank_folder: Path, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Read the table `queues`, without samples of requests that brought nothing. Raises as `read_table` does."""
    if not _is_old(rank_folder):
        return read_table(rank_folder, "queues", columns, where)
    wanted = list(columns) if columns is not None else arrow_schema("queues").names
    samples = read_table(rank_folder, "queues", list(dict.fromkeys([*wanted, *_REQUEST])), where)
    answered = read_table(rank_folder, "fetches", _REQUEST)
    return samples.filter(_find_answered(samples, answered)).select(wanted)


def _is_old(rank_folder: Path) -> bool:
    files = find_files(rank_folder, "queues")
    if not files or not find_files(rank_folder, "fetches"):
        return False
    try:
        return "batch" not in open_file(files[0], "queues").schema_arrow.names
    except (pa.ArrowException, OSError):  # whoever reads the rows says that it is damaged
        return False


def _find_answered(samples: pa.Table, answered: pa.Table) -> pa.Array:
    """Return a mask of the samples whose request brought a batch; loaders without any fetch tell nothing."""
    loaders = pc.fill_null(samples["loader"], -1).to_numpy()
    fetched = pc.fill_null(answered["loader"], -1).to_numpy()
    found = np.isin(samples["start_ns"].to_numpy(), answered["start_ns"].to_numpy())
    return pa.array(found | ~np.isin(loaders, np.unique(fetched)))
