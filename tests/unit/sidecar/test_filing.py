"""Samples are filed by the phase that the training thread was in at that moment, however the steps are taken in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from collector.format.phases import PHASE_PLACES
from collector.ring.words import PAYLOAD_MASK
from collector.sidecar.assemblers import steps as room
from collector.sidecar.assemblers.stacks import Filed, PhaseFiler
from collector.sidecar.stack_sampling import Sample
from collector.sidecar.steps.row_keeping import Done
from collector.sidecar.steps.rows import Row
from tests.unit.sidecar.test_steady import Assembly, make_words

_LAST_TIMED = 63


def _find_end(words: list[int]) -> int:
    return max((word & PAYLOAD_MASK for word in words if word >> 56 <= _LAST_TIMED), default=0)


def _file(folder: Path, words: list[int], samples: list[Sample]) -> tuple[list[Filed], Assembly]:
    """File samples that come in pieces with the words, as they do while a run records."""
    assembly = Assembly(folder)
    waiting, known = list(samples), [0]

    def more() -> list[Sample]:
        count = sum(sample.at_ns <= known[0] for sample in waiting)
        new = waiting[:count]
        del waiting[:count]
        return new

    filer = PhaseFiler(more)
    assembly.assembler.listeners.append(filer)
    for begin in range(0, len(words), 700):
        piece = words[begin : begin + 700]
        known[0] = _find_end(words[: begin + 700])
        assembly.take_in(piece, "poll" if begin + 700 < len(words) else "finish")
    return filer.take(), assembly


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_belongs_to_the_phase_in_which_it_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    words, dice = make_words(seed), random.Random(seed)
    end = _find_end(words)
    samples = [Sample(at, -1, -1, 0) for at in sorted(dice.sample(range(-500, end + 10_000), 2_000))]
    monkeypatch.setattr(room, "STEPS_WITH_PHASES", 10**9)
    slow, assembly = _file(tmp_path / "slow", words, samples)
    spans = [(row["start_ns"], row["start_ns"] + row["duration_ns"], row["phase"]) for row in assembly.rows("phases")]
    assert len(slow) > 1_500
    for filed in slow:
        assert [phase for start, stop, phase in spans if start <= filed.sample.at_ns < stop] == [filed.phase]
    monkeypatch.setattr(room, "STEPS_WITH_PHASES", 0)
    fast, _ = _file(tmp_path / "fast", words, samples)
    assert fast == slow


@pytest.mark.parametrize(("least_ns", "apart"), [(1_000, {80}), (3_000, set()), (0, set())])
def test_samples_of_a_step_that_the_job_may_have_stood_still_in_are_kept_apart(least_ns: int, apart: set[int]) -> None:
    samples = [Sample(at, -1, -1, 0) for at in (10, 50, 90, 1_500, 2_050, 2_090)]
    new = iter([samples])
    filer = PhaseFiler(lambda: next(new, []), least_ns)
    ends = (40, 80, 2_000, 2_080, 2_200)
    for start, end in zip((0, *ends), ends, strict=False):
        row = Row(start, 0)
        row.add(PHASE_PLACES["forward"], start, end)
        filer.see_row(Done(row, "train", 1, end, False))
    found = {filed.sample.at_ns: filed.long_row for filed in filer.take()}
    assert {row for row in found.values() if row} == apart
    if apart:
        assert {at for at, row in found.items() if row} == {90, 1_500}
