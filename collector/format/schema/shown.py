"""What a redacted run shows of a text: declared with each column, field and fact; a text without a declaration is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Names = Literal["", "annotations", "torch", "kernels", "errors"]
_KEY = "shown"


@dataclass(frozen=True)
class Shown:
    """Which texts are public. Any other becomes `alias` and a number, or is left out where `alias` is empty.

    Public are the texts of `words`, whatever number they hold; those whose letters are words of `letters`, such as
    `[["float", "int"]]`; and those that `names` has a list of. `separator` joins texts that are shown one by one. Of a
    JSON object the keys are texts, too, and the texts below a key of `left_out` are left out. `is_json` is of a column whose
    texts are JSON objects.
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
"""Numbers as JSON, or spelled with other signs."""
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
    """Return the metadata by which a field of a dataclass declares what is shown of its texts."""
    return {_KEY: what}


def read_shown(metadata: Mapping[str, Any]) -> Shown | None:
    """Return what a field declares, None for nothing."""
    found = metadata.get(_KEY)
    return found if isinstance(found, Shown) else None
