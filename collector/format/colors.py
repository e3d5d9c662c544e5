"""The colours of charts: a class means the same on every page and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping

PALETTE: Mapping[str, tuple[str, str]] = {
    "compute": ("#111eae", "#2f47fa"),
    "backward": ("#6f7ff5", "#9db0ff"),
    "communication": ("#d37860", "#b93a0a"),
    "overlap": ("#5a1169", "#d87aed"),
    "copy": ("#0d939c", "#b9edef"),
    "data": ("#b68e0f", "#fdd93b"),
    "host": ("#3d3f45", "#616570"),
    "optimizer": ("#265b02", "#5fe68b"),
    "idle": ("#868d95", "#7d858f"),
    "zero": ("#c4161c", "#ff6b6b"),
}
"""Class -> its colour on the light and on the dark ground; `tokens.css` has the same."""
