"""Input that nobody meant is accepted, or refused in the product's words: what once failed, and some hundred more of each kind."""

from __future__ import annotations

import pytest

from tests.fuzz import kinds
from tests.fuzz.__main__ import Stretch, Totals, run_worker
from tests.fuzz.frame import CORPUS, read_corpus

QUICK, SLOW = 100, 10_000


@pytest.mark.parametrize("kind", kinds.NAMES)
def test_what_once_failed_and_some_new_input_is_accepted_or_refused(kind: str) -> None:
    totals = Totals()
    run_worker(Stretch(kind, 7, 0, QUICK, corpus=True), totals)
    assert {one.signature: one.text for one in totals.smallest.values()} == {}
    assert totals.accepted > 0
    assert totals.refused > 0
    assert totals.checked == QUICK + len(read_corpus(kind))


def test_the_corpus_is_of_known_kinds_and_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= set(kinds.NAMES)
    assert sum(path.stat().st_size for path in files) < 500_000
