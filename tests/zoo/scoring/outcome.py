"""One drawn program: its recordings, what the advice on it said, and what its change really gained."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiler_server.facts.results import Suggestion
from tests.zoo.scoring.recording import Recorder, Recording

MIN_GAIN_FRAC = 0.15
MIN_GAIN_NOISES = 3.0
NEAR_FRAC = 0.15
_OPTIONS = {"num_workers": "--num-workers", "prefetch_factor": "--prefetch-factor"}
_FLAGS = {("in_order", False): "--any-order", ("persistent_workers", True): "--keep-workers"}


@dataclass(frozen=True)
class Known:
    """What is known of a drawn program. `accept` are the rules that name its cause rightly, empty for a healthy one."""

    script: str
    cause: str
    accept: frozenset[str]
    why: str
    work: str
    feed: str
    loop: str

    @staticmethod
    def read(entry: Mapping[str, Any]) -> Known:
        return Known(**{**entry, "accept": frozenset(entry["accept"])})


@dataclass(frozen=True)
class Round:
    """The program as it stands, twice, with the change that was advised and in its fixed form.

    `followed` is `fixed` where the change is one of the code; a healthy program has only its base.
    """

    base: Recording
    again: Recording | None = None
    followed: Recording | None = None
    fixed: Recording | None = None
    prediction: Suggestion | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured step, less 1."""
        if self.prediction is None or self.prediction.predicted_step_ns is None or not self._measured_ns:
            return None
        return self.prediction.predicted_step_ns / self._measured_ns - 1.0

    @property
    def is_covered(self) -> bool | None:
        """Say whether the measured step lies in the range that was shown."""
        said = self.prediction
        if said is None or said.predicted_low_ns is None or said.predicted_high_ns is None or not self._measured_ns:
            return None
        return said.predicted_low_ns <= self._measured_ns <= said.predicted_high_ns

    @property
    def is_argument(self) -> bool:
        """Say whether the change that was recorded is exactly the one that was advised."""
        return self.followed is not None and self.followed is not self.fixed

    @property
    def _measured_ns(self) -> float:
        return self.followed.step_ns if self.followed is not None and self.followed.is_whole else 0.0


@dataclass(frozen=True)
class Outcome:
    known: Known
    rounds: tuple[Round, ...]

    @property
    def is_whole(self) -> bool:
        """Say whether every program of every round ended well and recorded steps."""
        return all(part.is_whole for r in self.rounds for part in (r.base, r.again, r.followed, r.fixed) if part)

    @property
    def gain_frac(self) -> float | None:
        """Return what the fixed form gains by the program's own clock."""
        fixed = [r.fixed.clock_ns for r in self.rounds if r.fixed is not None]
        base = self._base_clocks()
        return 1.0 - statistics.median(fixed) / statistics.median(base) if fixed and base else None

    @property
    def noise_frac(self) -> float:
        base = self._base_clocks()
        return (max(base) - min(base)) / statistics.median(base) if base else 0.0

    @property
    def is_valid(self) -> bool:
        gain = self.gain_frac
        return self.is_whole and gain is not None and gain >= max(MIN_GAIN_FRAC, MIN_GAIN_NOISES * self.noise_frac)

    def find_places(self) -> list[int | None]:
        """Return for each recording of the base the place of the first accepted suggestion, from 1."""
        bases = [part for r in self.rounds for part in (r.base, r.again) if part is not None]
        return [_find_place(base.advice, self.known.accept) for base in bases]

    def _base_clocks(self) -> list[float]:
        return [part.clock_ns for r in self.rounds for part in (r.base, r.again) if part is not None and part.clock_ns]


def _find_place(advice: Sequence[Suggestion], accept: frozenset[str]) -> int | None:
    return next((place for place, said in enumerate(advice, 1) if said.rule in accept), None)


def record_round(recorder: Recorder, known: Known, number: int) -> Round:
    """Record one round: base, changed, fixed, base again, so that a drift of the host's load meets all."""
    base = recorder.record(known.script, f"{number}-base")
    if not known.cause or not base.is_whole:
        return Round(base)
    said = next((s for s in base.promises if s.rule in known.accept), None)
    arguments = follow(said, (recorder.programs / f"{known.script}.py").read_text("utf-8")) if said is not None else ()
    followed = recorder.record(known.script, _name_form(number, arguments), arguments) if arguments else None
    fixed = recorder.record(known.script, f"{number}-fixed", ("--fixed",))
    again = recorder.record(known.script, f"{number}-again")
    return Round(base, again, followed or fixed, fixed, said)


def _name_form(number: int, arguments: Sequence[str]) -> str:
    return f"{number}-changed" + re.sub(r"[^\w]+", "-", "".join(arguments))


def follow(suggestion: Suggestion, program: str) -> tuple[str, ...]:
    """Return the arguments that make of a program what the suggestion says; none where it is a change of the code."""
    arguments: list[str] = []
    for name, value in suggestion.settings.items():
        if option := _OPTIONS.get(name):
            arguments += [option, str(value)]
        elif flag := _FLAGS.get((name, bool(value))):
            arguments.append(flag)
    threads = re.search(r"set_num_threads\((\d+)\)", suggestion.change)
    if threads:
        arguments += ["--threads", threads[1]]
    offered = all(f'"{word}"' in program for word in arguments if word.startswith("--"))
    return tuple(arguments) if arguments and offered else ()
