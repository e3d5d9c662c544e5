"""Which change gains, by trials in turns: each is compared with the unchanged runs before and behind it.

The first round tries each candidate once, the next rounds those that may gain. Changes that gain are combined one by one,
as long as the whole gains. All runs together give the scatter from run to run, and a difference within it is no gain.
Changes whose trials take long come last.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collector.format.noise import quantile_of_t
from collector.launch.trying.applying import Change
from collector.launch.trying.inside import WARM_UP
from collector.launch.trying.knobs import Candidate

EVERY = 3
"""An unchanged run comes after so many trials."""
ROUNDS = 3
MOST_FINALISTS = 4
LEAST_GAIN_FRAC = 0.02
"""A smaller gain is not worth a change."""
_OUTLIER = 5.0
_MOST_OUTLIERS_FRAC = 0.1
_LEAST_SCATTER = 0.003
_LONGEST_LOG = math.log(1000.0)
"""A step that is a thousand times as long is long enough as a bound."""
_USUAL_SCATTER = 0.1
"""As long as too few runs repeat each other, such as on a busy machine."""


class TrialFailed(Exception):
    """A trial did not end well; the message is one line."""


class OutOfTime(Exception):
    """The budget is used up."""


@dataclass(frozen=True)
class Trial:
    """A run: the times between its updates in ns, and its losses in the order of the steps."""

    steps_ns: tuple[float, ...]
    losses: tuple[float, ...] = ()

    @property
    def step_ns(self) -> float:
        return statistics.fmean(self.steps_ns[_count_warm_up(len(self.steps_ns)) :])


def _count_warm_up(steps: int) -> int:
    return WARM_UP if steps >= WARM_UP + 5 else steps // 4


def compare_steps(found: Trial, base: Trial) -> float:
    """Return the logarithm of the ratio of two runs' time, over the steps that both have after warming up.

    A step that is very long in both, such as a validation, is left out: it would dilute the gain of the others. With
    many such steps, such as an epoch's begin every few steps, all count.
    """
    count = min(len(found.steps_ns), len(base.steps_ns))
    pairs = list(zip(found.steps_ns, base.steps_ns, strict=False))[_count_warm_up(count) :]
    limits = [_OUTLIER * statistics.median(side) for side in zip(*pairs, strict=True)]
    kept = [pair for pair in pairs if pair[0] <= limits[0] or pair[1] <= limits[1]]
    if len(pairs) - len(kept) > _MOST_OUTLIERS_FRAC * len(pairs):
        kept = pairs
    ours, theirs = (sum(side) for side in zip(*kept, strict=True))
    return math.log(ours / theirs)


@dataclass
class Tried:
    """A candidate, or several together, with its trials as logarithms of its step over that of the runs beside it."""

    candidates: tuple[Candidate, ...]
    logs: list[float] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    failure: str = ""

    @property
    def label(self) -> str:
        return " + ".join(candidate.label for candidate in self.candidates)

    @property
    def change(self) -> Change:
        return {name: value for candidate in self.candidates for name, value in candidate.change.items()}

    @property
    def knobs(self) -> set[str]:
        return {candidate.knob for candidate in self.candidates}

    @property
    def gain_frac(self) -> float:
        """The share of the step that is saved, negative if the step becomes longer."""
        return 1.0 - math.exp(statistics.fmean(self.logs)) if self.logs else 0.0


@dataclass
class Search:
    """The state of a search. `measure` runs one trial; it raises TrialFailed or OutOfTime. `note` gets each result."""

    measure: Callable[[Change], Trial]
    note: Callable[[str, Trial | str], None]
    bases: list[Trial] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    best: Tried | None = None
    _pending: list[Tried] = field(default_factory=list)
    """Tried, with no unchanged run behind them yet."""

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Try the candidates until the gains are known or the time is over; what is known then stays.

        Raises TrialFailed if the script fails as it is.
        """
        self.tried = [Tried((candidate,)) for candidate in candidates]
        try:
            self._try_base()
            for is_slow in (False, True):
                self._round([entry for entry in self.tried if entry.candidates[0].is_slow == is_slow])
                for _ in range(ROUNDS - 1):
                    self._round(self._list_finalists())
                self._combine()
        except OutOfTime:
            pass
        finally:  # Ctrl-C too
            self._settle(self.bases[-1:])
            if self.best is None:
                self.best = next((entry for entry in self._rank() if self.is_gain(entry)), None)

    def measure_scatter(self) -> tuple[float, int]:
        """Return the standard deviation of one comparison, as a logarithm, and its degrees of freedom.

        It is pooled from repeats of each change and from unchanged runs that follow each other. Such two differ by twice
        the variance of a run, and a comparison with two unchanged runs has 1.5 times that.
        """
        steps = [compare_steps(later, base) for base, later in zip(self.bases, self.bases[1:], strict=False)]
        repeats = [[log - statistics.fmean(entry.logs) for log in entry.logs] for entry in self.tried if entry.logs]
        freedom = len(steps) + sum(len(each) - 1 for each in repeats)
        if freedom < 2:
            return _USUAL_SCATTER, 2
        squares = sum(0.75 * step**2 for step in steps) + sum(log**2 for each in repeats for log in each)
        return max(math.sqrt(squares / freedom), _LEAST_SCATTER), freedom

    def bound_gain(self, entry: Tried) -> tuple[float, float]:
        """Return the interval of a gain. All intervals together are right in 95 % of searches."""
        scatter, freedom = self.measure_scatter()
        count = sum(1 for each in self.tried if each.logs)
        half = quantile_of_t(freedom, 1.0 - 0.025 / max(count, 1)) * scatter / math.sqrt(len(entry.logs))
        mean = statistics.fmean(entry.logs)
        return 1.0 - math.exp(min(mean + half, _LONGEST_LOG)), 1.0 - math.exp(mean - half)

    def is_gain(self, entry: Tried) -> bool:
        """Return whether a change surely saves a share that is worth it."""
        return bool(entry.logs) and entry.gain_frac >= LEAST_GAIN_FRAC and self.bound_gain(entry)[0] > 0

    @property
    def is_repeatable(self) -> bool:
        """Whether unchanged runs have the same losses."""
        return all(_have_same_losses(base, self.bases[0]) for base in self.bases)

    def has_same_losses(self, entry: Tried) -> bool | None:
        """Return whether a change alters no bit of the losses; None if unchanged runs differ too or no loss is known."""
        if not entry.trials or not entry.trials[-1].losses or not self.is_repeatable:
            return None
        return all(_have_same_losses(trial, self.bases[0]) for trial in entry.trials)

    def compare_losses(self, entry: Tried) -> float | None:
        """Return by which share the last loss differs from that of an unchanged run."""
        pairs = list(zip(entry.trials[-1].losses, self.bases[0].losses, strict=False)) if entry.trials else []
        return abs(pairs[-1][0] - pairs[-1][1]) / max(abs(pairs[-1][1]), 1e-12) if pairs else None

    def _try_base(self) -> None:
        try:
            self.bases.append(self.measure({}))
        except TrialFailed as error:
            if not self.bases:
                raise
            self.note("as it is", str(error))
        else:
            self.note("as it is", self.bases[-1])

    def _round(self, entries: Sequence[Tried]) -> None:
        """Try each entry once, with an unchanged run after every few."""
        for start in range(0, len(entries), EVERY):
            before = len(self.bases) - 1
            for entry in entries[start : start + EVERY]:
                self._try(entry)
            if self._pending:
                self._try_base()
                self._settle(self.bases[before:])

    def _try(self, entry: Tried) -> None:
        try:
            entry.trials.append(self.measure(entry.change))
        except TrialFailed as error:
            entry.failure = str(error)
            self.note(entry.label, entry.failure)
            return
        self._pending.append(entry)
        self.note(entry.label, entry.trials[-1])

    def _settle(self, beside: Sequence[Trial]) -> None:
        """Compare the pending trials with the unchanged runs before and behind them, the nearer one more."""
        for number, entry in enumerate(self._pending, 1):
            logs = [compare_steps(entry.trials[-1], base) for base in beside]
            place = number / (len(self._pending) + 1)
            entry.logs.append(logs[0] + place * (logs[-1] - logs[0]))
        self._pending.clear()

    def _rank(self) -> list[Tried]:
        return sorted((entry for entry in self.tried if entry.logs), key=lambda entry: -entry.gain_frac)

    def _list_finalists(self) -> list[Tried]:
        best = [entry for entry in self._rank() if len(entry.candidates) == 1 and self._may_gain(entry)]
        return [entry for entry in best[:MOST_FINALISTS] if len(entry.logs) < ROUNDS and not entry.failure]

    def _may_gain(self, entry: Tried) -> bool:
        return self.bound_gain(entry)[1] >= LEAST_GAIN_FRAC

    def _combine(self) -> None:
        """Add the next best change as long as the whole becomes shorter than the best so far."""
        for entry in [each for each in self._rank() if len(each.candidates) == 1 and self.is_gain(each)]:
            if self.best is None or (self._is_better(entry) and entry.knobs & self.best.knobs):
                self.best = entry
            both = Tried((*self.best.candidates, *entry.candidates))
            if entry.knobs & self.best.knobs or both.change in [each.change for each in self.tried]:
                continue
            self.tried.append(both)
            for _ in range(ROUNDS):
                self._round([both] if not both.failure else [])
            if self._is_better(both):
                self.best = both

    def _is_better(self, entry: Tried) -> bool:
        best = self.best.gain_frac if self.best is not None else 0.0
        return self.is_gain(entry) and entry.gain_frac > best + self.measure_scatter()[0]


def _have_same_losses(trial: Trial, base: Trial) -> bool:
    return all(ours == theirs for ours, theirs in zip(trial.losses, base.losses, strict=False))
