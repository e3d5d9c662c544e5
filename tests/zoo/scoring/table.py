"""The score of drawn programs: totals, and one line per program."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.zoo.scoring.outcome import NEAR_FRAC, Outcome, Round
from tests.zoo.scoring.recording import Recording


@dataclass(frozen=True)
class Errors:
    """How far predicted steps are from measured ones; the shares are of `count`."""

    count: int
    median: float
    mean: float
    near: int
    covered: int

    def say(self) -> str:
        return (
            f"median {self.median:.1%}, mean {self.mean:.1%}, within {NEAR_FRAC:.0%} {self.near}/{self.count}; "
            f"measured step inside the range {self.covered}/{self.count}"
        )


@dataclass(frozen=True)
class Score:
    """`first` and `third` are of `judged` recordings; `silent` are healthy programs without a promised gain."""

    planted: int
    valid: int
    judged: int
    first: int
    third: int
    unsaid: int
    healthy: int
    silent: int
    speechless: int
    mended: int
    mended_silent: int
    impossible: tuple[str, ...]
    misclocked: tuple[str, ...]
    broken: tuple[str, ...]
    all_errors: Errors | None
    argument_errors: Errors | None
    code_errors: Errors | None


def make_score(outcomes: Sequence[Outcome]) -> Score:
    """Count over the programs whose plant is valid; what healthy and mended programs are told counts for all."""
    planted = [o for o in outcomes if o.known.cause]
    valid = [o for o in planted if o.is_valid]
    places = [place for o in valid for place in o.find_places()]
    healthy = [r.base for o in outcomes if not o.known.cause for r in o.rounds if r.base.is_whole]
    mended = [r.fixed for o in valid for r in o.rounds if r.fixed is not None]
    rounds = [r for o in valid for r in o.rounds]
    return Score(
        planted=len(planted),
        valid=len(valid),
        judged=len(places),
        first=sum(place == 1 for place in places),
        third=sum(place is not None and place <= 3 for place in places),
        unsaid=sum(place is None for place in places),
        healthy=len(healthy),
        silent=sum(not run.promises for run in healthy),
        speechless=sum(not run.advice for run in healthy),
        mended=len(mended),
        mended_silent=sum(not run.promises for run in mended),
        impossible=tuple(f for o in outcomes for f in _find_impossible(o)),
        misclocked=tuple(f for o in outcomes for f in _find_misclocked(o)),
        broken=tuple(o.known.script for o in outcomes if not o.is_whole),
        all_errors=_sum_errors(rounds),
        argument_errors=_sum_errors([r for r in rounds if r.is_argument]),
        code_errors=_sum_errors([r for r in rounds if not r.is_argument]),
    )


def _sum_errors(rounds: Sequence[Round]) -> Errors | None:
    errors = [abs(r.error) for r in rounds if r.error is not None]
    if not errors:
        return None
    near = sum(error <= NEAR_FRAC for error in errors)
    covered = sum(r.is_covered is True for r in rounds)
    return Errors(len(errors), statistics.median(errors), statistics.mean(errors), near, covered)


def _list_bases(outcome: Outcome) -> Iterator[Recording]:
    for r in outcome.rounds:
        yield from (part for part in (r.base, r.again, r.fixed) if part is not None and part.is_whole)


def _find_impossible(outcome: Outcome) -> Iterator[str]:
    for run in _list_bases(outcome):
        for said in run.promises:
            low, step, high = said.predicted_low_ns, said.predicted_step_ns, said.predicted_high_ns
            whole = step is not None and low is not None and high is not None
            if not whole or not 0 < (low or 0) <= (step or 0) <= (high or 0) <= 1.001 * run.step_ns:
                yield f"{outcome.known.script}: {said.rule} {_ms(low)} – {_ms(step)} – {_ms(high)} of {_ms(run.step_ns)}"


def _find_misclocked(outcome: Outcome) -> Iterator[str]:
    """Yield programs whose own clock and the recorded steps differ by much, which the start of the loop may explain."""
    for run in _list_bases(outcome):
        if not 0.85 < run.step_ns / run.clock_ns < 1.1:
            yield f"{outcome.known.script}: {_ms(run.step_ns)} recorded, {_ms(run.clock_ns)} by its own clock"


def print_outcome(outcome: Outcome) -> None:
    known = outcome.known
    base = [r.base for r in outcome.rounds if r.base.is_whole]
    if not base:
        print(f"{known.script:16s} {known.cause or '(healthy)':24s} did not run: {_say_failure(outcome)}", flush=True)
        return
    step = statistics.median(run.step_ns for run in base)
    kind = f"{known.work}/{known.feed}/{known.loop}"
    said = [[s.rule for s in run.advice[:3]] or ["–"] for run in base]
    start = f"{known.script:16s} {known.cause or '(healthy)':24s} {kind:30s} {_ms(step):>9s}"
    if not known.cause:
        print(f"{start}  said {said}", flush=True)
        return
    notes = [_say_round(r) for r in outcome.rounds]
    gain = outcome.gain_frac
    validity = "" if outcome.is_valid else f"  NOT VALID ({_say_failure(outcome) or 'the gain is too small'})"
    print(
        f"{start}  fixed gains {gain or 0:.0%} (noise {outcome.noise_frac:.0%})  places {outcome.find_places()} "
        f"said {said}  {'; '.join(notes)}{validity}",
        flush=True,
    )


def _say_round(r: Round) -> str:
    if r.error is None or r.prediction is None or r.followed is None:
        return "no prediction"
    how = "by argument" if r.is_argument else "in the code"
    outside = "" if r.is_covered else " outside of its range"
    return f"{how} {_ms(r.prediction.predicted_step_ns)} predicted, {_ms(r.followed.step_ns)} measured, {r.error:+.0%}{outside}"


def _say_failure(outcome: Outcome) -> str:
    parts = [part for r in outcome.rounds for part in (r.base, r.again, r.followed, r.fixed) if part]
    bad = next((part for part in parts if not part.is_whole), None)
    if bad is None:
        return ""
    last = bad.ran.said.strip().splitlines()[-1:] or ["no steps were recorded"]
    return f"{bad.folder.name} ended with {bad.ran.exit_code}: {last[0]}"


def print_score(score: Score) -> None:
    print(f"valid plants {score.valid}/{score.planted}; programs that failed: {', '.join(score.broken) or 'none'}")
    print(
        f"cause first {_part(score.first, score.judged)}, among three {_part(score.third, score.judged)}, not named {score.unsaid}"
    )
    print(
        f"healthy programs without a promised gain {_part(score.silent, score.healthy)}, without any advice "
        f"{score.speechless}; mended programs without a promised gain {_part(score.mended_silent, score.mended)}"
    )
    kinds = (("all", score.all_errors), ("by argument", score.argument_errors), ("in the code", score.code_errors))
    for name, errors in kinds:
        print(f"predicted step, {name}: {errors.say() if errors is not None else 'none'}")
    for title, found in (("impossible figures", score.impossible), ("clocks that differ", score.misclocked)):
        print(f"{title}: {len(found)}")
        for line in found:
            print(f"  {line}")


def _part(count: int, whole: int) -> str:
    return f"{count}/{whole}" + (f" ({count / whole:.0%})" if whole else "")


def _ms(value_ns: float | None) -> str:
    return "none" if value_ns is None else f"{value_ns / 1e6:.1f} ms"
