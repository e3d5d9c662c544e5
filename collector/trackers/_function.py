"""Log to a function of the user's, called with figures or texts, and the number of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Function:
    def __init__(self, call: Callable[[dict[str, Any], int], object], run_path: Path) -> None:
        self._call = call

    def find(self) -> bool:
        return True

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._call(dict(figures), step)

    def conclude(self, figures: Mapping[str, float], texts: Mapping[str, str], report: Path | None, step: int) -> None:
        # Texts have a call of their own, because many trackers accept numbers only.
        self._call(dict(figures), step)
        if texts:
            self._call({**texts, **({"stepscope/report": str(report)} if report else {})}, step)


TRACKER = Function
