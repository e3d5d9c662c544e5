"""How a table is declared: a name, a sentence, and its columns with dtype, unit and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collector.format.schema.shown import Shown

Dtype = Literal["int64", "int32", "float64", "bool", "string", "category"]
"""`category` is a string with few distinct values, stored with a dictionary."""


@dataclass(frozen=True)
class Column:
    """One column of a table. `unit` is empty for a name, a flag or an identifier.

    `since` is the format version that brought the column. In files of an older one a column that cannot be null reads
    as 0; without it in a file of that version or a later one, the file is damaged. `shown` says which texts of the column
    a redacted run shows; every column of texts has it.
    """

    name: str
    dtype: Dtype
    unit: str
    meaning: str
    nullable: bool = False
    since: int = 1
    shown: Shown | None = None

    @property
    def holds_text(self) -> bool:
        return self.dtype in ("string", "category")


@dataclass(frozen=True)
class Table:
    """One table of a run: `rank_<r>/<name>.parquet`, or a folder `rank_<r>/<name>/` of parts in time order.

    `option` names the `Profiler` argument that switches the table off, empty where nothing does.
    `since` is the schema version that brought the table.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    option: str = ""
    since: int = 1

    def column(self, name: str) -> Column:
        """Return the column of that name; KeyError names the table and the column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name!r} has no column {name!r}")

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)
