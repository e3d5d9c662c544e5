"""The lines of the user whose time per step differs between two runs by more than the sampling of stacks may err.

A function is the same in both runs if it has the same name; a line of the training loop, if its text is the same or
nearly so, because line numbers move between versions of a file.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from collector.format.noise import quantile_of_t
from collector.format.run import Run
from profiler_server.analysis.compare.comparison import Difference, LineShare, compare_ranks
from profiler_server.analysis.compare.run_statistics import correct_chances
from profiler_server.analysis.compare.run_times import read_times
from profiler_server.diagnosis.changes import find_same
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.limits.stacks import HOTSPOT_FRAC
from profiler_server.facts.case import Hotspot, Lines

_Z = 1.96
_MISSED = 3.0
"""What no sample is in may have had this many of them, with 95 % certainty."""
_MOST_LINES = 15


def compare_lines(a: Run, b: Run, rank: int | None = None) -> tuple[LineShare, ...]:
    """Return the lines whose time clearly changed, at most 15, the largest change first. Empty if a run has no samples.

    `rank` None compares the first ranks. Raises as `compare_ranks` and `diagnose` do.
    """
    step = compare_ranks(a.rank(rank), b.rank(rank)).step
    lines = [diagnose(run, run.rank(rank).rank).lines for run in (a, b)]
    if lines[0] is None or lines[1] is None or not step.a_ns or not step.b_ns:
        return ()
    return list_shares((step.a_ns, step.b_ns), (lines[0], lines[1]), step.noise_ns or 0.0)


def compare_sides(a: Sequence[Run], b: Sequence[Run], rank: int | None = None) -> tuple[LineShare, ...]:
    """Return the lines whose time clearly changed between two lists of runs, as `compare_lines` does for two runs.

    Raises as `read_times` and `diagnose` do.
    """
    if len(a) == len(b) == 1:
        return compare_lines(a[0], b[0], rank)
    sides = []
    for runs in (a, b):
        read = [(read_times(run, rank), diagnose(run, run.rank(rank).rank).lines) for run in runs]
        known = [(float(times.steps_ns.mean()), lines) for times, lines in read if lines is not None]
        if not known:
            return ()
        sides.append(pool_lines(known))
    (a_ns, a_lines), (b_ns, b_lines) = sides
    return list_shares((a_ns, b_ns), (a_lines, b_lines))


def pool_lines(runs: Sequence[tuple[float, Lines]]) -> tuple[float, Lines]:
    """Return the mean step of runs of one program and their lines, as of one run. Each run is its mean step in ns and
    its lines. The scatter of the runs widens the interval of a line.
    """
    step_ns = statistics.fmean(each_ns for each_ns, _ in runs)
    spots = []
    for key, shown in {spot.key: spot for _, lines in runs for spot in lines.hotspots}.items():
        of_runs = [next((spot for spot in lines.hotspots if spot.key == key), None) for _, lines in runs]
        measured = [_measure(spot, key, *run) for spot, run in zip(of_runs, runs, strict=True)]
        times_ns = [time_ns for time_ns, _ in measured]
        error_ns = math.hypot(*(error_ns for _, error_ns in measured)) / len(runs)
        if len(runs) > 1:
            scatter_ns = statistics.stdev(times_ns) / math.sqrt(len(runs))
            error_ns = max(error_ns, quantile_of_t(len(runs) - 1) / _Z * scatter_ns)
        share_frac, half_frac = statistics.fmean(times_ns) / step_ns, _Z * error_ns / step_ns
        low_frac, high_frac = share_frac - half_frac, share_frac + half_frac
        spots.append(replace(shown, share_frac=share_frac, low_frac=low_frac, high_frac=high_frac))
    names = {name for _, lines in runs for name in lines.through_fracs}
    through = {name: statistics.fmean(lines.through_fracs.get(name, 0.0) for _, lines in runs) for name in names}
    samples = sum(lines.samples for _, lines in runs)
    return step_ns, replace(runs[0][1], samples=samples, hotspots=tuple(spots), through_fracs=through)


def list_shares(
    steps_ns: tuple[float, float], lines: tuple[Lines, Lines], noise_ns: float = 0.0
) -> tuple[LineShare, ...]:
    """Return the lines whose time clearly changed, from the mean step and the sampled lines of both runs.

    `noise_ns` is the noise of the change of the step: a line has its share of it.
    """
    found = [_add_noise(each, noise_ns / max(steps_ns)) for each in _pair(steps_ns, lines)]
    chances = correct_chances([each.part.p or 0.0 for each in found])
    judged = [
        replace(each, part=replace(each.part, corrected_p=chance)) for each, chance in zip(found, chances, strict=True)
    ]
    clear = [each for each in judged if each.part.is_clear]
    return tuple(sorted(clear, key=lambda each: -abs(each.part.change_ns))[:_MOST_LINES])


def _add_noise(line: LineShare, noise_frac: float) -> LineShare:
    part = line.part
    noise_ns = math.hypot(part.noise_ns or 0.0, noise_frac * max(part.a_ns, part.b_ns))
    p = math.erfc(abs(part.change_ns) * _Z / noise_ns / math.sqrt(2.0)) if noise_ns else 1.0
    return replace(line, part=replace(part, noise_ns=noise_ns, p=p, corrected_p=p))


def _pair(steps_ns: tuple[float, float], lines: tuple[Lines, Lines]) -> Iterator[LineShare]:
    """Yield each line of either run with its time in both."""
    left = [spot for spot in lines[1].hotspots if spot.key]
    for spot in lines[0].hotspots:
        if spot.key:
            same = find_same(spot, left)
            if same is not None:
                left.remove(same)
            yield _describe((spot, same), spot, steps_ns, lines)
    for spot in left:
        yield _describe((None, spot), spot, steps_ns, lines)


def _describe(
    spots: tuple[Hotspot | None, Hotspot | None],
    shown: Hotspot,
    steps_ns: tuple[float, float],
    lines: tuple[Lines, Lines],
) -> LineShare:
    (a_ns, a_error), (b_ns, b_error) = (
        _measure(spot, shown.key, step_ns, of) for spot, step_ns, of in zip(spots, steps_ns, lines, strict=True)
    )
    error_ns = math.hypot(a_error, b_error)
    named = spots[1] or shown
    part = Difference(_name(named), a_ns, b_ns, _Z * error_ns)
    a_place, b_place = (spot.place if spot is not None else "" for spot in spots)
    return LineShare(part, a_place, b_place, named.lines[0].text)


def _measure(spot: Hotspot | None, key: str, step_ns: float, lines: Lines) -> tuple[float, float]:
    """Return the time of a line per step, and its standard error from the number of samples.

    Of a line with a small share only the samples with this line on the stack are known: an upper bound.
    """
    if spot is not None:
        return spot.share_frac * step_ns, (spot.high_frac - spot.low_frac) / (2.0 * _Z) * step_ns
    count = max(lines.samples, 1)
    share_frac = min(lines.through_fracs.get(key, 0.0), HOTSPOT_FRAC)
    error_frac = max(math.sqrt(share_frac * (1.0 - share_frac) / count), min(_MISSED / count, 1.0) / _Z)
    return share_frac * step_ns, error_frac * step_ns


def _name(spot: Hotspot) -> str:
    return spot.lines[0].text or spot.place if spot.is_of_loop else f"{spot.function}()"
