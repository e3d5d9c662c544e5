"""Which change gains, by trials in turns: each is compared with the unchanged runs beside it.

The first round tries each candidate once. The best go into pairs with unchanged runs until the gain is known, and those
that gain are combined one by one, as long as the whole gains. The unchanged runs in between give the scatter from run to
run, so a difference that is not larger than that is no gain.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collector.format.noise import quantile_of_t
from collector.launch.trying.applying import Change
from collector.launch.trying.knobs import Candidate

EVERY = 3
"""An unchanged run comes after so many trials."""
PAIRS = 3
MOST_FINALISTS = 4
LEAST_GAIN_FRAC = 0.02
"""A smaller gain is not worth a change."""


class TrialFailed(Exception):
    """A trial did not end well; the message is one line."""


class OutOfTime(Exception):
    """The budget is used up."""


@dataclass(frozen=True)
class Trial:
    """A run: its mean step in ns, and its losses in the order of the steps."""

    step_ns: float
    losses: tuple[float, ...] = ()


@dataclass
class Tried:
    """A candidate, or several together, with its trials as logarithms of its step over that of the runs beside it."""

    candidates: tuple[Candidate, ...]
    logs: list[float] = field(default_factory=list)
    steps_ns: list[float] = field(default_factory=list)
    failure: str = ""
    loss_frac: float | None = None
    is_same_bits: bool = False

    @property
    def label(self) -> str:
        return " + ".join(candidate.label for candidate in self.candidates)

    @property
    def change(self) -> Change:
        return {name: value for candidate in self.candidates for name, value in candidate.change.items()}

    @property
    def gain_frac(self) -> float:
        """The share of the step that is saved, negative if the step becomes longer."""
        return 1.0 - math.exp(statistics.fmean(self.logs)) if self.logs else 0.0

    def bound_gain(self, scatter: float) -> tuple[float, float]:
        """Return the 95 % interval of the gain. One trial is as uncertain as the scatter of unchanged runs says."""
        mean, count = statistics.fmean(self.logs), len(self.logs)
        if count >= PAIRS:
            half = quantile_of_t(count - 1) * statistics.stdev(self.logs) / math.sqrt(count)
        else:
            half = 2.0 * scatter * math.sqrt(1.0 / count + 0.5)
        return 1.0 - math.exp(mean + half), 1.0 - math.exp(mean - half)


@dataclass
class Search:
    """The state of a search. `measure` runs one trial; it raises TrialFailed or OutOfTime. `note` gets each result."""

    measure: Callable[[Change], Trial]
    note: Callable[[str, Trial | str], None]
    bases: list[Trial] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    best: Tried | None = None
    _pending: list[Tried] = field(default_factory=list)
    """Tried once, with no unchanged run behind them yet."""

    @property
    def scatter(self) -> float:
        """The standard deviation of the logarithm of unchanged runs; 2 % as long as there are fewer than three."""
        logs = [math.log(base.step_ns) for base in self.bases]
        return max(statistics.stdev(logs), 0.002) if len(logs) >= 3 else 0.02

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Try the candidates until the gains are known or the time is over; what is known then stays."""
        try:
            self._try_base()
            self._screen(candidates)
            self._pair([entry for entry in self._rank() if self._may_gain(entry)][:MOST_FINALISTS])
            self._combine()
        except OutOfTime:
            self._settle(self.bases[-1:])
        if self.best is None:
            self.best = next((entry for entry in self._rank() if self.is_gain(entry)), None)

    def is_gain(self, entry: Tried) -> bool:
        """Return whether a change surely saves a share that is worth it."""
        return bool(entry.logs) and entry.bound_gain(self.scatter)[0] > 0 and entry.gain_frac >= LEAST_GAIN_FRAC

    def _try_base(self) -> Trial:
        base = self.measure({})
        self.bases.append(base)
        self.note("as it is", base)
        return base

    def _screen(self, candidates: Sequence[Candidate]) -> None:
        for number, candidate in enumerate(candidates, 1):
            entry = Tried((candidate,))
            self.tried.append(entry)
            if self._try(entry):
                self._pending.append(entry)
            if number % EVERY == 0 or number == len(candidates):
                self._settle([self.bases[-1], self._try_base()])

    def _settle(self, beside: Sequence[Trial]) -> None:
        """Compare the pending trials with the unchanged runs beside them."""
        for entry in self._pending:
            entry.logs.append(
                math.log(entry.steps_ns[-1]) - statistics.fmean(math.log(base.step_ns) for base in beside)
            )
        self._pending.clear()

    def _try(self, entry: Tried) -> bool:
        try:
            found = self.measure(entry.change)
        except TrialFailed as error:
            entry.failure = str(error)
            self.note(entry.label, entry.failure)
            return False
        entry.steps_ns.append(found.step_ns)
        self._compare_losses(entry, found)
        self.note(entry.label, found)
        return True

    def _compare_losses(self, entry: Tried, found: Trial) -> None:
        base = self.bases[0].losses
        count = min(len(base), len(found.losses))
        if count:
            entry.is_same_bits = base[:count] == found.losses[:count]
            scale = max(abs(base[count - 1]), 1e-12)
            entry.loss_frac = abs(found.losses[count - 1] - base[count - 1]) / scale

    def _rank(self) -> list[Tried]:
        return sorted((entry for entry in self.tried if entry.logs), key=lambda entry: -entry.gain_frac)

    def _may_gain(self, entry: Tried) -> bool:
        return entry.bound_gain(self.scatter)[1] >= LEAST_GAIN_FRAC and entry.gain_frac > 0

    def _pair(self, entries: Sequence[Tried]) -> None:
        """Try each with an unchanged run of its own until there are enough pairs."""
        for _ in range(PAIRS - 1):
            for entry in entries:
                if self._try(entry):
                    entry.logs.append(math.log(entry.steps_ns[-1]) - math.log(self._try_base().step_ns))

    def _combine(self) -> None:
        """Add the next best change as long as the whole becomes shorter than the best so far."""
        gaining = [entry for entry in self._rank() if self.is_gain(entry)]
        if not gaining:
            return
        self.best = best = gaining[0]
        for entry in gaining[1:]:
            if {each.knob for each in entry.candidates} & {each.knob for each in best.candidates}:
                continue
            both = Tried((*best.candidates, *entry.candidates))
            self.tried.append(both)
            self._pair_with(both)
            if both.logs and both.gain_frac > best.gain_frac + self.scatter and self.is_gain(both):
                self.best = best = both

    def _pair_with(self, entry: Tried) -> None:
        for _ in range(PAIRS):
            if not self._try(entry):
                return
            entry.logs.append(math.log(entry.steps_ns[-1]) - math.log(self._try_base().step_ns))
