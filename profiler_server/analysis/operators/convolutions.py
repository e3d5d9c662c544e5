"""Convolutions for which no library has code, as those in float64 on processors, and what float32 saves of them.

They lay their input out as a matrix, every number once for each place of the kernel (im2col), and multiply that by the
weights. A convolution in float32 needs no such matrix, and its product takes half as long. A number of the matrix is written
and read once, and multiplied once for each channel of the output, so the product is C / (C + E) of the time, where with E
channels both take as long.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import find_files
from collector.format.run import RankRun
from profiler_server.facts.steps import SlowConvolutions

_NAME = "_slow_conv"
_EVEN_CHANNELS = 80
"""E of two programs measured on two virtual cores: 2.2 ns for a number of the matrix, 72 GFLOP/s in its product."""
_PRODUCT_SAVED_FRAC = 0.5
_USUAL_CHANNELS = 64
"""Channels where the shapes were not recorded."""


def find_slow_convolutions(rank: RankRun) -> SlowConvolutions:
    """Return what the detailed steps show of them. Raises TableBrokenError or NewerSchemaError."""
    if not find_files(rank.folder, "operators"):
        return SlowConvolutions()
    operators = rank.table("operators", ("name", "input_shapes", "self_ns"))
    total_ns = pc.sum(operators["self_ns"]).as_py()
    rows = operators.filter(pc.match_substring(operators["name"].cast(pa.string()), _NAME)).to_pylist()
    slow_ns = sum(row["self_ns"] for row in rows)
    if not slow_ns or not total_ns:
        return SlowConvolutions()
    product_ns = sum(row["self_ns"] * _find_product(_read_channels(row["input_shapes"])) for row in rows)
    return SlowConvolutions(slow_ns / total_ns, 1.0 - _PRODUCT_SAVED_FRAC * product_ns / slow_ns)


def _find_product(channels: int) -> float:
    return channels / (channels + _EVEN_CHANNELS)


def _read_channels(shapes: str | None) -> int:
    """Return the channels of the output: the weights are the last of the inputs that has as many dimensions as the first."""
    try:
        inputs = json.loads(shapes or "")
        return int([shape for shape in inputs if len(shape) == len(inputs[0])][-1][0])
    except (ValueError, TypeError, LookupError):
        return _USUAL_CHANNELS
