"""Find the changes that gain: the script runs unchanged and with some changes in several processes, which take turns.

In a round, each process gets a turn of the same updates, and each change is compared with the unchanged script of the
same round. So a disturbance of the machine affects all alike. A change leaves once it is known to gain, or to be worth
nothing. Then changes that gain are combined, in fresh processes, as long as the combination gains. Changes with long
trials come last.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from collector.format.noise import quantile_of_t
from collector.launch.trying.applying import Candidate, Change
from collector.launch.trying.inside import Span
from collector.launch.trying.turns import LONGEST_LOG, Life, Turn, compare_turns, estimate

TOGETHER = 4
"""The number of changes that have processes at the same time, beside the unchanged script."""
WARM_UP, FEW = 10, 3
"""The number of first updates that are not compared, and the smaller number for long updates: workers and caches need
time to reach their usual state."""
_LONG_STEP_S = 0.5
LEAST_ROUNDS, MOST_ROUNDS = 5, 16
_TURN_S, _LEAST_TURN_S = 0.3, 0.05
_LONGEST_EPOCH_S = 4.0
"""The longest epoch that turns cover, so that each has the same share of what happens once in an epoch."""
LEAST_GAIN_FRAC = 0.02
"""The least gain, as a share of the step, that is worth a change."""
_ENOUGH_FRAC = 0.02
"""A gain needs no more rounds if its interval reaches at most this far to both sides."""
_WIDEST_FRAC = 1.0
"""An interval that holds 0 and is wider than this says nothing on the gain."""
_MORE = 1.2
"""A gain may be this many times what the setting governs: that share is measured too."""
_MOST_AGAIN, _LARGE_FRAC = 4, 0.1
"""Changes without a measured gain, or with one that may be none or large, are repeated so many times."""
_HOPELESS = math.log(1.3)
"""A change that makes two rounds this much longer is dropped at once. A turn ends when it has taken `_SLOWER` times the
expected time."""
_SLOWER = 6.0
_STARTS_FRAC = 0.3
"""The starts of a group take at most this share of the remaining time."""
_PROCESS_FRAC = 0.008
"""The standard deviation of the difference between two processes of the same program."""


AS_IT_IS = "as it is"
_ENDS_EARLY = "the script ends before it can be compared"


class TrialFailed(Exception):
    """A trial did not end well; the message is one line."""


class OutOfTime(Exception):
    """The budget is used up."""


class Player(Protocol):
    """A process of the script with one change. The process starts at its first turn."""

    def play(self, span: Span) -> Turn:
        """Let the process run for a turn. Raises TrialFailed or OutOfTime."""

    def end(self) -> None: ...


@dataclass
class Tried:
    """A candidate, or a combination of several, with the results of its processes. `failure` is why the change cannot
    be judged, "" if it can.
    """

    candidates: tuple[Candidate, ...]
    lives: list[Life] = field(default_factory=list)
    failure: str = ""

    @property
    def label(self) -> str:
        return " + ".join(candidate.label for candidate in self.candidates)

    @property
    def labels(self) -> set[str]:
        return {candidate.label for candidate in self.candidates}

    @property
    def change(self) -> Change:
        return {name: value for candidate in self.candidates for name, value in candidate.change.items()}

    @property
    def most_frac(self) -> float:
        return min(math.fsum(candidate.most_frac for candidate in self.candidates), 1.0)

    @property
    def knobs(self) -> set[str]:
        return {candidate.knob for candidate in self.candidates}

    @property
    def settings(self) -> set[str]:
        """The names of the settings that the change sets or removes. Changes of the same setting cannot be combined."""
        names = {name.rpartition(".")[2] for name in self.change}
        return self.knobs.union(names, *(candidate.keywords or () for candidate in self.candidates))

    @property
    def known(self) -> list[Life]:
        return [life for life in self.lives if life.logs]

    def bound(self, certainty: float) -> tuple[float, float]:
        """Return the mean of log(time / unchanged script's time) over all processes, and half the width of its
        interval. `certainty` is the quantile of the upper bound. Processes with more rounds count more.
        """
        found = [estimate(life.logs) for life in self.known]
        weights = [1.0 / (error**2 + 2.0 * _PROCESS_FRAC**2) for _, error, _ in found]
        mean = math.fsum(weight * each[0] for weight, each in zip(weights, found, strict=True)) / sum(weights)
        freedom = sum(each[2] for each in found)
        return mean, quantile_of_t(freedom, certainty) / math.sqrt(sum(weights))

    @property
    def gain_frac(self) -> float:
        """The saved share of the step: negative if the step becomes longer, 0 if nothing was compared."""
        return 1.0 - math.exp(self.bound(0.5)[0]) if self.known else 0.0


@dataclass
class Search:
    """The state of a search. `start` starts a process with a change, `note` receives the results, `best` is the best
    combination so far.

    `count` returns how many changes fit into memory beside the unchanged script. `left_s` returns the remaining time in
    seconds, and `is_time_over` is whether it ended the search. `turn_s` is the wanted length of a turn; turns cover whole epochs of `epoch` updates, if that is not 0. The
    remaining time is shared by `groups_left` groups.
    """

    start: Callable[[Change], Player]
    note: Callable[[str, Life | str], None]
    left_s: Callable[[], float] = lambda: math.inf
    count: Callable[[], int] = lambda: TOGETHER
    bases: list[Life] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    best: Tried | None = None
    turn_s: float = _TURN_S
    epoch: int = 0
    groups_left: int = 1
    is_time_over: bool = False

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Try the candidates until the gains are known or the time is over. Gains found by then stay.

        Raises TrialFailed if the unchanged script fails.
        """
        self.tried = [Tried((candidate,)) for candidate in candidates]
        try:
            for is_slow in (False, True):
                entries = [entry for entry in self.tried if entry.candidates[0].is_slow == is_slow]
                left = entries
                while left:
                    most = self.count()
                    self.groups_left = 3 + math.ceil(len(left) / most)
                    left = [*_Group(self, left[:most]).run(), *left[most:]]
                if any(self._may_gain(entry) for entry in entries):
                    self._combine()
            if any(self.is_gain(entry) for entry in self._measure_again()):
                self._combine()
        except OutOfTime:
            self.is_time_over = True
        finally:  # Ctrl-C too
            if self.best is None:
                self.best = next((entry for entry in self.rank() if self.is_gain(entry)), None)

    def bound_gain(self, entry: Tried) -> tuple[float, float]:
        """Return the least and the largest likely gain, as shares of the step. In 95 % of searches the intervals of all
        changes hold the true gains.
        """
        mean, half = entry.bound(1.0 - 0.025 / max(len(self.tried), 1))
        return 1.0 - math.exp(min(mean + half, LONGEST_LOG)), 1.0 - math.exp(max(mean - half, -LONGEST_LOG))

    def is_gain(self, entry: Tried) -> bool:
        """Return whether a change certainly gains, and by at least LEAST_GAIN_FRAC of the step."""
        is_sure = bool(entry.known) and entry.gain_frac >= LEAST_GAIN_FRAC and self.bound_gain(entry)[0] > 0
        return is_sure and not self.is_too_large(entry)

    def is_too_large(self, entry: Tried) -> bool:
        """Return whether a gain is larger than the settings can gain. It counts all the same if each of several
        processes certainly gains more: some shares of the step are estimates.
        """
        if entry.gain_frac <= _MORE * entry.most_frac + LEAST_GAIN_FRAC:
            return False
        single = [self.bound_gain(Tried(entry.candidates, [life]))[0] for life in entry.known]
        return len(single) < 2 or min(single) <= entry.most_frac

    def is_measured(self, entry: Tried) -> bool:
        """Return whether a gain is possible, and its interval lies on one side of 0 or is narrow enough to be of use."""
        if not entry.known or self.is_too_large(entry):
            return False
        low, high = self.bound_gain(entry)
        return low > 0 or high < 0 or high - low <= _WIDEST_FRAC

    def is_worth_rounds(self, entry: Tried) -> bool:
        """Return whether more rounds could change the judgement of a change."""
        low, high = self.bound_gain(entry)
        if high < LEAST_GAIN_FRAC or (low > 0 and high - low < 2 * _ENOUGH_FRAC):
            return False
        rivals = (each for each in self.tried if each is not entry and each.known and each.knobs == entry.knobs)
        return all(self.bound_gain(each)[0] <= high for each in rivals)

    @property
    def step_ns(self) -> float:
        return statistics.fmean(base.step_ns for base in self.bases)

    @property
    def is_repeatable(self) -> bool:
        """Whether all unchanged processes have the same losses."""
        return all(_have_same_losses(base, self.bases[0]) for base in self.bases)

    def has_same_losses(self, entry: Tried) -> bool | None:
        """Return whether a change alters no bit of the losses; None if unchanged runs differ too or no loss is known."""
        if not entry.lives or not entry.lives[-1].losses or not self.is_repeatable:
            return None
        return all(_have_same_losses(life, self.bases[0]) for life in entry.lives)

    def compare_losses(self, entry: Tried) -> float | None:
        """Return the share by which the last loss that both have differs between the change and the first unchanged
        process; None if there is no such loss."""
        pairs = list(zip(entry.lives[-1].losses, self.bases[0].losses, strict=False)) if entry.lives else []
        return abs(pairs[-1][0] - pairs[-1][1]) / max(abs(pairs[-1][1]), 1e-12) if pairs else None

    def rank(self) -> list[Tried]:
        return sorted((entry for entry in self.tried if entry.known), key=lambda entry: -entry.gain_frac)

    def _measure_again(self) -> list[Tried]:
        """Repeat changes whose gain is unknown in fresh processes, and return them."""
        unknown = [entry for entry in self.tried if self._is_unknown(entry)]
        self.groups_left = 2
        for _ in range(_MOST_AGAIN):
            if left := [entry for entry in unknown if self._is_unknown(entry)]:
                _Group(self, sorted(left, key=lambda entry: len(entry.lives))[: self.count()]).run()
        return unknown

    def _is_unknown(self, entry: Tried) -> bool:
        """Return whether a gain is not measured, or may be anything between none and a large one."""
        if not entry.known or entry.failure:
            return False
        low, high = self.bound_gain(entry)
        return not self.is_measured(entry) or (low <= 0 and high >= _LARGE_FRAC)

    def _combine(self) -> None:
        """Repeat the best change in fresh processes, beside its combinations and other changes of the same settings. Go
        on from the best of them.
        """
        whole: Tried | None = next(entry for entry in self.rank() if self._may_gain(entry))
        been: list[Tried] = []
        while whole is not None:
            been.append(whole)
            several = self._list_beside(whole, been)
            if whole is self.best and not several:
                return
            self.tried += [entry for entry in several if len(entry.candidates) > 1]
            self.groups_left = 2
            _Group(self, [whole, *several]).run()
            self.best = whole if self.is_gain(whole) else None
            better = [entry for entry in several if self._is_better(entry, whole)]
            whole = max(better, key=lambda entry: entry.gain_frac, default=None)

    def _list_beside(self, whole: Tried, been: Sequence[Tried]) -> list[Tried]:
        """Return what to try beside the combination `whole`: another change of the same settings that may gain more,
        and `whole` with one more change. Changes in `been` are left out.
        """
        others = [entry for entry in self.rank() if len(entry.candidates) == 1]
        rivals = [
            each for each in others if each.settings & whole.settings and each not in been and self._may_gain(each)
        ]
        rivals = [each for each in rivals if self.bound_gain(each)[1] >= whole.gain_frac]
        beside = [each for each in others if not each.settings & whole.settings and self.is_gain(each)]
        both = [Tried((*whole.candidates, *each.candidates)) for each in beside]
        failed = [entry.labels for entry in self.tried if entry.failure]
        both = [each for each in both if not any(labels <= each.labels for labels in failed)]
        return [*rivals[:1], *both][: max(self.count() - 1, 1)]

    def _may_gain(self, entry: Tried) -> bool:
        return self.is_measured(entry) and self.bound_gain(entry)[1] >= LEAST_GAIN_FRAC

    def _is_better(self, entry: Tried, whole: Tried) -> bool:
        """Return whether `entry` gains more than `whole`, over the rounds that both took part in."""
        if not (entry.known and whole.known):
            return False
        logs = [ours - theirs for ours, theirs in zip(entry.known[-1].logs, whole.known[-1].logs, strict=False)]
        mean, error, freedom = estimate(logs)
        half = quantile_of_t(freedom, 0.95) * math.hypot(error, _PROCESS_FRAC)
        return self.is_gain(entry) and mean + half < 0


class _Group:
    def __init__(self, search: Search, entries: Sequence[Tried]) -> None:
        self._search = search
        self._end_s = search.left_s() * (1.0 - 1.0 / search.groups_left)
        self._players: dict[int, Player] = {}
        self._base = Life()
        self._active: dict[int, tuple[Tried, Life]] = {}
        self._entries = entries
        self._is_over = False

    def run(self) -> list[Tried]:
        """Run the changes of the group until all gains are known. Return the changes that were not started, because too
        little time was left.

        Raises OutOfTime, and TrialFailed if the unchanged script fails.
        """
        begun_s = self._search.left_s()
        try:
            self._players[-1] = self._search.start({})
            self._base.turns.append(self._begin(-1, Span(WARM_UP, FEW, WARM_UP * _LONG_STEP_S)))
            self._search.bases.append(self._base)
            now_s = self._search.left_s()
            most = max(int(_STARTS_FRAC * now_s / (begun_s - now_s)), 1) if begun_s > now_s else len(self._entries)
            self._entries, late = self._entries[:most], list(self._entries[most:])
            for number, entry in enumerate(self._entries):
                self._enter(number, entry)
            self._play_rounds()
        except TrialFailed as error:
            if not any(entry.known for entry in self._search.tried):
                raise
            self._search.note(AS_IT_IS, str(error))
            late = []
        finally:
            for player in self._players.values():
                player.end()
        for entry in self._entries:
            if not entry.failure and not entry.known:
                entry.failure = _ENDS_EARLY
        return late

    def _enter(self, number: int, entry: Tried) -> None:
        life = Life()
        warm = len(self._base.turns[0].steps_ns)
        try:
            self._players[number] = self._search.start(entry.change)
            life.turns.append(self._begin(number, Span(warm)))
        except TrialFailed as error:
            self._fail(number, entry, str(error))
        else:
            entry.lives.append(life)
            self._active[number] = (entry, life)

    def _begin(self, number: int, span: Span) -> Turn:
        turn = self._players[number].play(span)
        if turn.is_over:
            raise TrialFailed(f"the script ended before {span.updates} updates of an optimizer in its own process")
        return turn

    def _play_rounds(self) -> None:
        step_s = statistics.median(self._base.turns[0].steps_ns) / 1e9
        updates = max(round(self._search.turn_s / step_s), 2 if step_s < 2 * _LONG_STEP_S else 1)
        if self._search.epoch and self._search.epoch * step_s <= _LONGEST_EPOCH_S:
            updates = math.ceil(updates / self._search.epoch) * self._search.epoch
        for count in range(1, MOST_ROUNDS + 1):
            order = [-1, *self._active]
            for number in order if count % 2 else reversed(order):
                self._play(number, Span(updates, 1, _SLOWER * updates * step_s) if number >= 0 else Span(updates))
            self._compare(count)
            if self._is_over:  # shorter turns give more rounds
                self._search.turn_s, self._search.epoch = max(self._search.turn_s / 2, _LEAST_TURN_S), 0
            if not self._active or self._is_over or (count >= LEAST_ROUNDS and self._search.left_s() < self._end_s):
                break
        for number in list(self._active):
            self._leave(number)

    def _play(self, number: int, span: Span) -> None:
        try:
            turn = self._players[number].play(span)
        except TrialFailed as error:
            if number < 0:
                raise
            self._fail(number, self._active[number][0], str(error))
            return
        life = self._base if number < 0 else self._active[number][1]
        life.turns.append(turn)
        self._is_over |= turn.is_over

    def _compare(self, count: int) -> None:
        base = self._base.turns[-1]
        for number, (entry, life) in list(self._active.items()):
            found = life.turns[-1]
            if not found.steps_ns or not base.steps_ns:
                continue
            life.logs.append(compare_turns(found, base))
            is_hopeless = count >= 2 and min(life.logs) > _HOPELESS
            is_cut = len(found.steps_ns) < len(base.steps_ns) and not found.is_over
            if is_hopeless or is_cut or (count >= LEAST_ROUNDS and not self._search.is_worth_rounds(entry)):
                self._leave(number)

    def _leave(self, number: int) -> None:
        entry, life = self._active.pop(number)
        self._search.note(entry.label, life if life.logs else _ENDS_EARLY)
        self._players.pop(number).end()

    def _fail(self, number: int, entry: Tried, failure: str) -> None:
        entry.failure = failure
        self._active.pop(number, None)
        self._search.note(entry.label, failure)
        if number in self._players:
            self._players.pop(number).end()


def _have_same_losses(life: Life, base: Life) -> bool:
    return all(ours == theirs for ours, theirs in zip(life.losses, base.losses, strict=False))
