"""A heat map as a small picture: one row per rank, one column per group of steps.

Plotly's heat map sets inline styles, which the content policy forbids. A picture is also smaller.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Mask
from profiler_server.figures.charts import Numbers
from profiler_server.figures.strips import Tick, percent

_RED = (214, 40, 46)
"""The colour of times, readable on the light and on the dark ground. A more opaque cell is a longer time."""
_VIOLET = (140, 80, 230)
"""The colour of times beyond the scale."""
_PALEST, _FULL = 10, 255
HIGH_PERCENTILE = 99.5
"""Percentile from which times get the full colour, so that a single long step does not pale all others."""
LEAST_RED = 1.25
"""Least full-colour time as a multiple of the median, so that noise does not look like trouble."""
OUTLYING_RATIO, OUTLYING_PERCENTILE = 4.0, 75.0
"""A cell is beyond the scale if it exceeds this multiple of this percentile of the cells."""
OUTLYING_COLUMNS_FRAC = 0.05
"""Share of the columns, and at least one, that may have cells beyond the scale. Otherwise no cell is beyond it."""
MOST_LABELS = 16


@dataclass(frozen=True)
class HeatLabel:
    """The name of a row and the SVG position of its middle."""

    text: str
    y: str


@dataclass(frozen=True)
class Heat:
    """A heat map. `image` is the data URL of the picture, which is stretched without smoothing.

    `low_ns` and `high_ns` are the ends of the colour scale; `most_ns` is the largest value. `beyond` is the number of
    cells far above the scale, which have another colour. `tall` is true for many rows.
    """

    image: str
    rows: tuple[HeatLabel, ...]
    ticks: tuple[Tick, ...]
    low_ns: float
    high_ns: float
    most_ns: float
    beyond: int
    tall: bool


def build_heat(x: Numbers, rows: Sequence[str], values_ns: Numbers) -> Heat:
    """Return a heat map of times. `values_ns` has a row per name in `rows` and a column per x; a NaN stays empty."""
    beyond = _find_beyond(values_ns)
    known = values_ns[np.isfinite(values_ns) & ~beyond]
    low, high = (float(known.min()), float(np.percentile(known, HIGH_PERCENTILE))) if len(known) else (0.0, 0.0)
    high = max(high, LEAST_RED * float(np.median(known))) if len(known) else 0.0
    most = float(np.nanmax(values_ns)) if len(known) else 0.0
    share = np.clip((np.nan_to_num(values_ns, nan=low) - low) / (high - low), 0.0, 1.0) if high > low else 0 * values_ns
    alpha = np.where(np.isfinite(values_ns), _PALEST + share * (_FULL - _PALEST), 0.0)
    each = max(1, -(-len(rows) // MOST_LABELS))
    labels = [HeatLabel(name, percent(row + 0.5, len(rows))) for row, name in enumerate(rows) if row % each == 0]
    image, count = _encode_png(alpha, beyond), int(beyond.sum())
    return Heat(image, tuple(labels), _build_ticks(x), low, high, most, count, tall=len(rows) > 8)


def _find_beyond(values_ns: Numbers) -> Mask:
    """Return a mask of the few cells so large that a scale with them would make all other cells look alike."""
    known = np.isfinite(values_ns)
    if not known.any():
        return known
    limit = OUTLYING_RATIO * float(np.percentile(values_ns[known], OUTLYING_PERCENTILE))
    beyond: Mask = known & (values_ns > limit) if limit > 0 else np.zeros_like(known)
    columns = int(beyond.any(axis=0).sum())
    return beyond if columns <= max(1.0, OUTLYING_COLUMNS_FRAC * values_ns.shape[1]) else np.zeros_like(known)


def _build_ticks(x: Numbers, count: int = 8) -> tuple[Tick, ...]:
    if not len(x):
        return ()
    picked = np.unique(np.linspace(0, len(x) - 1, min(count, len(x))).astype(np.int64)).tolist()
    last = picked[-1] if len(picked) > 1 else None
    return tuple(
        Tick(percent(at + 0.5, len(x)), f"{x[at]:,}", "start" if at == 0 else "end" if at == last else "middle")
        for at in picked
    )


def _encode_png(alpha: Numbers, beyond: Mask) -> str:
    """Return a red PNG whose opacity (0 to 255) is `alpha`, as a data URL. Cells in the mask `beyond` are violet."""
    height, width = alpha.shape
    pixels = np.empty((height, width, 4), np.uint8)
    pixels[..., :3] = np.where(beyond[..., None], _VIOLET, _RED)
    pixels[..., 3] = alpha.astype(np.uint8)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    data = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode("ascii")
