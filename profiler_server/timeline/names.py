"""The dictionary of a timeline: one number per distinct name and category, with how often and how long it ran."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints
from profiler_server.timeline.pyramid import Uint32s


class NameCollector:
    """Numbers the pairs of name and category in order of appearance. `source` keeps equal pairs of two sources apart."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str, str], int] = {}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(name, category) for _, name, category in self._numbers]

    def number(self, name: pa.DictionaryArray, category: pa.DictionaryArray, source: int) -> Uint32s:
        """Return the number of each row's pair; the loop runs over distinct pairs only."""
        width = max(len(category.dictionary), 1)
        codes = name.indices.to_numpy().astype(np.int64) * width + category.indices.to_numpy()
        distinct, place = np.unique(codes, return_inverse=True)
        names = name.dictionary.take(pa.array(distinct // width)).to_pylist()
        categories = category.dictionary.take(pa.array(distinct % width)).to_pylist()
        numbers = [
            self._numbers.setdefault((source, n or "", c or ""), len(self._numbers))
            for n, c in zip(names, categories, strict=True)
        ]
        result: Uint32s = np.asarray(numbers, np.uint32)[place.reshape(-1)]
        return result


@dataclass(frozen=True)
class Names:
    """The dictionary as columns by number; `total_ns` and `longest_ns` are of whole slices."""

    name: list[str]
    category: list[str]
    count: Ints
    total_ns: Ints
    longest_ns: Ints

    def find(self, text: str) -> npt.NDArray[np.intp]:
        """Return the numbers of the names that contain a text, whatever its case."""
        found = pc.match_substring(self._arrow, text, ignore_case=True).to_numpy(zero_copy_only=False)
        return np.flatnonzero(found)

    @property
    def _arrow(self) -> pa.Array:
        return pa.array(self.name, pa.string())


def write_names(path: Path, names: Names) -> None:
    """Write the dictionary as Arrow IPC."""
    table = pa.table(
        {
            "name": pa.array(names.name, pa.string()),
            "category": pa.array(names.category, pa.string()),
            "count": names.count,
            "total_ns": names.total_ns,
            "longest_ns": names.longest_ns,
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_names(path: Path) -> Names:
    """Read what `write_names` wrote."""
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all().combine_chunks()
        return Names(
            table["name"].to_pylist(),
            table["category"].to_pylist(),
            *(np.array(table[column].to_numpy()) for column in ("count", "total_ns", "longest_ns")),
        )
