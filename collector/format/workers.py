"""The DataLoader workers of a run, to take some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.schema.errors import OptionError, TableMissingError
from collector.format.timeline_rows import find_workers

if TYPE_CHECKING:
    from collector.format.run import RankRun

_MOST_TOLD = 20


def list_workers(ranks: Sequence[RankRun]) -> list[int]:
    """Return the numbers of the workers that some ranks have. Raises as `RankRun.table` does."""
    found: set[int] = set()
    for rank in ranks:
        try:
            stages = rank.table("stages", ("loader", "replica"))
        except TableMissingError:
            continue
        found |= set(pc.unique(pc.drop_null(find_workers(stages))).to_pylist())
    return sorted(found)


def keep_workers(stages: pa.Table, workers: Collection[int]) -> pa.Table:
    """Return the rows of `stages` that tell of some workers, and those that tell of no worker."""
    worker = find_workers(stages)
    return stages.filter(pc.or_(pc.is_null(worker), pc.is_in(worker, pa.array(sorted(workers), pa.int32()))))


def check_numbers(what: str, there: Sequence[int], wanted: Iterable[int]) -> list[int]:
    """Return the numbers wanted. OptionError that names those there are, if one of them is not."""
    known = set(there)
    chosen = []
    for number in wanted:
        if number not in known:
            told = ", ".join(map(str, there[:_MOST_TOLD])) + (" …" if len(there) > _MOST_TOLD else "")
            raise OptionError(f"the run has no {what} {number}; it has {told or 'none'}")
        chosen.append(number)
    return chosen
