"""A part of a time, as both halves of the Device page list them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One category of the mean step, or one kind of the device's time."""

    label: str
    color: str
    duration: str
    share: str
    share_frac: float
    meaning: str
