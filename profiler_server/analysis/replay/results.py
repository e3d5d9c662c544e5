"""What a replay answers: whether it can be believed, what changes would gain, and what was seen in the window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_ERROR_FRAC = 0.03
"""A replay of the unchanged window that is further from its measured time predicts nothing."""


@dataclass(frozen=True)
class Gain:
    """Share of the window that a change saves: what a poor version of it saves, the usual one, and the best."""

    low_frac: float
    frac: float
    high_frac: float


@dataclass(frozen=True)
class Sighting:
    """Something that a window has, per step: how often, and the time of it. `examples` name the most costly ones.

    `gain` is what its absence would save, None where the replay is not believed. `figures` are further numbers.
    """

    count: float
    spent_ns: float
    examples: tuple[str, ...] = ()
    gain: Gain | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """The replay of a window. `gains` are those of changes by name, `seen` what was found in it by rule."""

    steps: int
    left_out: int
    nodes: int
    measured_ns: float
    replayed_ns: float
    gains: Mapping[str, Gain] = field(default_factory=dict)
    seen: Mapping[str, Sighting] = field(default_factory=dict)

    @property
    def error_frac(self) -> float:
        return self.replayed_ns / self.measured_ns - 1.0 if self.measured_ns else 0.0

    @property
    def is_valid(self) -> bool:
        return abs(self.error_frac) <= MOST_ERROR_FRAC
