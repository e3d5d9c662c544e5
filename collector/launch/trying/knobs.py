"""The changes that may be tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collector.launch.trying.applying import Change


@dataclass(frozen=True)
class Candidate:
    """A change to try. Of several with the same `knob` at most one is chosen. `code` is what the user would write.

    `place` names the calls of the user's that the change rewrites: with these `keywords` (None takes one away), or
    without any, by `code`. `is_slow` means that a trial takes much longer than others.
    """

    knob: str
    label: str
    change: Change
    code: str
    place: str = ""
    keywords: Mapping[str, Any] | None = None
    is_slow: bool = False
