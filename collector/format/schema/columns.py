"""Classes to declare a table: its columns with dtype, unit and meaning, and the texts that a redacted run shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 1
"""The version of the run format. It is increased when a reader for the previous version would misread a run."""

Names = Literal["", "annotations", "torch", "kernels", "errors"]
_KEY = "shown"


@dataclass(frozen=True)
class Shown:
    """The texts of a column that a redacted run shows (public texts). Every other text becomes `alias` and a number, or
    is left out if `alias` is empty.

    A text is public in three cases. It is in `words`, apart from the numbers in it. Or all its letters form words of
    `letters`, such as `[["float", "int"]]`. Or it is in one of the lists that `names` names. `separator` joins texts
    that are checked one by one. `is_json` marks a column of JSON objects: its keys are texts too, and texts below a key
    in `left_out` are left out.
    """

    alias: str = ""
    words: tuple[str, ...] = ()
    letters: tuple[str, ...] | None = None
    names: Names = ""
    separator: str = ""
    left_out: tuple[str, ...] = ()
    is_json: bool = False


LEFT_OUT = Shown()
NUMBERS = Shown(letters=())
"""Texts without letters are public: numbers, with punctuation or as JSON."""
OPERATOR = Shown("operator", names="torch")
GROUP = Shown("group", words=("0",))
COLLECTIVE = Shown(
    "collective",
    letters=(
        *("all", "reduce", "gather", "scatter", "to", "broadcast", "send", "recv", "barrier", "base", "single"),
        *("coalesced", "into", "tensor", "allreduce", "allgather", "reducescatter", "alltoall", "sendrecv", "sparse"),
        *("anysource", "monitored", "uneven", "dispatch", "combine", "notify", "ddp", "unknown", "backward"),
        *("nccl", "gloo", "mpi", "ucc", "xccl", "v"),
    ),
)
DTYPE = Shown(
    "dtype",
    letters=(
        *("float", "double", "half", "bfloat", "bf", "fp", "f", "complex", "int", "uint", "qint", "quint", "long"),
        *("short", "char", "signed", "unsigned", "bool", "byte", "scalar", "list", "tensor", "c", "at", "e", "m", "fn"),
        *("fnuz", "fnu", "uz", "b", "u", "i", "none", "null", "string", "device", "nv", "std", "dtype", "torch"),
        *("scalarlist", "tensorlist", "genericlist", "optional"),
    ),
)
VERSION = Shown("version", letters=("cpu", "cu", "rocm", "xpu", "a", "b", "rc", "dev", "post", "git"))
DEVICE = Shown(
    "device",
    letters=(
        *("nvidia", "tesla", "geforce", "rtx", "gtx", "titan", "quadro", "ada", "generation", "super", "ti", "laptop"),
        *("amd", "instinct", "radeon", "pro", "graphics", "xt", "xtx", "mi", "intel", "arc", "data", "center", "gpu"),
        *("max", "apple", "gaudi", "hl", "sxm", "pcie", "nvl", "hbm", "gb", "gh", "oam", "mig", "gfx"),
        *("a", "b", "c", "d", "e", "g", "h", "l", "m", "p", "s", "t", "v", "x"),
        *("cpu", "cuda", "rocm", "hip", "xpu", "mps", "hpu", "mtia"),
    ),
)


def shown(what: Shown) -> Mapping[str, Any]:
    """Return the metadata with which a dataclass field declares the texts that a redacted run shows."""
    return {_KEY: what}


def read_shown(metadata: Mapping[str, Any]) -> Shown | None:
    """Return what `shown` put into a field's metadata: the texts that a redacted run shows. None if it put nothing."""
    found = metadata.get(_KEY)
    return found if isinstance(found, Shown) else None


Dtype = Literal["int64", "int32", "float64", "bool", "string", "category"]
"""The type of a column. `category` is a string with few distinct values, stored with a dictionary."""


@dataclass(frozen=True)
class Column:
    """One column of a table. `counts` is the unit of its values if its name has no unit suffix.

    `since` is the format version that introduced the column. In an older file, a column that is not nullable reads as
    0; in a file of that version or later, a missing column means damage. `shown` declares the texts that a redacted run
    shows; every text column has it.
    """

    name: str
    dtype: Dtype
    meaning: str
    counts: str = ""
    nullable: bool = False
    since: int = 1
    shown: Shown | None = None

    @property
    def unit(self) -> str:
        """The unit of the values; empty for a name, a flag or an identifier."""
        ending = self.name.rpartition("_")
        return self.counts or (ending[2] if ending[0] and ending[2] in ("ns", "bytes") else "")


def category(name: str, meaning: str, shown: Shown, nullable: bool = False) -> Column:
    """Declare a text column with few distinct values."""
    return Column(name, "category", meaning, nullable=nullable, shown=shown)


@dataclass(frozen=True)
class Table:
    """One table of a run: `rank_<r>/<name>.parquet`, or a folder `rank_<r>/<name>/` of parts in time order.

    `option` names the `Profiler` argument that switches the table off, empty if there is none. `since` is the schema
    version that introduced the table.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    option: str = ""
    since: int = 1

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name!r} has no column {name!r}")

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)
