"""Bars in a time strip, in percent of its width, as SVG attributes, so that no inline style is needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.format.phases import PHASE_COLORS, PHASE_LABELS
from profiler_server.format import choose_time_unit, format_duration, format_share

LABEL_MIN_FRAC = 0.085
"""Least share of the strip in which a bar shows its duration. The bar's name needs more room."""
NAME_CHARACTER_FRAC = 0.0088
"""Share of the strip that one character takes at the least supported page width."""


@dataclass(frozen=True)
class Bar:
    """One bar. `x` and `width` are SVG percentages, `color` a category. `text` is shown inside, `title` on hover."""

    x: str
    width: str
    color: str
    text: str
    title: str


@dataclass(frozen=True)
class Tick:
    """A mark of the time axis; `anchor` keeps its text inside the strip."""

    x: str
    text: str
    anchor: str


@dataclass(frozen=True)
class Strip:
    """Bars that fill the width, with the axis below and a sentence with the same content."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    sentence: str


def build_strip(stretches: Sequence[tuple[str, float, float]], whole_ns: float) -> Strip:
    """Return a strip of one step. Each stretch is given as phase, start and duration in ns; `whole_ns` is the step."""
    sums: dict[str, float] = {}
    for phase, _, duration in stretches:
        sums[phase] = sums.get(phase, 0.0) + duration
    # A marked stretch has the time of its phase in the list below. If a phase has several stretches, the longest is
    # marked.
    longest = {phase: max(length for name, _, length in stretches if name == phase) for phase in sums}
    bars = tuple(
        _build_bar(phase, start, length, whole_ns, format_duration(sums[phase]) if length == longest[phase] else "")
        for phase, start, length in stretches
        if length > 0
    )
    spoken = ", ".join(f"{PHASE_LABELS[name]} {format_duration(value)}" for name, value in sums.items())
    return Strip(bars, build_ticks(whole_ns), f"{format_duration(whole_ns)}: {spoken}." if spoken else "Nothing.")


def build_lane(stretches: Iterable[tuple[str, float, float]], whole_ns: float) -> tuple[Bar, ...]:
    """Return bars without text inside, for a row that has its label at the side. Stretches are as in `build_strip`."""
    return tuple(_build_bar(phase, start, length, whole_ns, "") for phase, start, length in stretches if length > 0)


def _build_bar(phase: str, start_ns: float, duration_ns: float, whole_ns: float, shown: str) -> Bar:
    share = duration_ns / whole_ns if whole_ns else 0.0
    duration = format_duration(duration_ns)
    label = PHASE_LABELS.get(phase, phase)
    color = PHASE_COLORS.get(phase, "communication")
    title = f"{label}: starts at {format_duration(start_ns)}, takes {duration} ({format_share(share)})"
    text = _fit_text(label, shown, share) if shown else ""
    return Bar(percent(start_ns, whole_ns), percent(duration_ns, whole_ns), color, text, title)


def _fit_text(label: str, duration: str, share: float) -> str:
    both = f"{label} {duration}"
    if share >= len(both) * NAME_CHARACTER_FRAC + 0.01:
        return both
    return duration if share >= LABEL_MIN_FRAC else ""


def build_ticks(whole_ns: float) -> tuple[Tick, ...]:
    """Return five to eight marks at round times from 0 to at most `whole_ns`; empty if `whole_ns` is 0."""
    if whole_ns <= 0:
        return ()
    scale, unit = choose_time_unit(whole_ns)
    whole = whole_ns / scale
    power = 10.0 ** math.floor(math.log10(whole / 4))
    step = power * max((f for f in (1, 2, 2.5, 5) if f * power <= whole / 4), default=1)
    count = math.floor(whole / step + 1e-9)
    return tuple(
        Tick(percent(i * step, whole), f"{i * step:g} {unit}", "start" if i == 0 else "end" if i == count else "middle")
        for i in range(count + 1)
    )


def percent(part: float, whole: float) -> str:
    """Return `part` as an SVG length in percent of `whole`."""
    return f"{min(max(100.0 * part / whole if whole else 0.0, 0.0), 100.0):.3f}%"
