"""Input that nobody meant is accepted, or refused in the product's words: what once failed, and some more of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.launch.barrier import VARIABLE
from tests.fuzz import kinds
from tests.fuzz.__main__ import Stretch, Totals, run_worker
from tests.fuzz.control import train
from tests.fuzz.frame import CORPUS, read_corpus

QUICK = {"traces": 20, "manifests": 10, "tables": 6, "caches": 6, "control": 20, "uploads": 60, "packs": 60}
"""Of seed 7; `python -m tests.fuzz KIND` tries any number of others."""


@pytest.mark.parametrize("kind", kinds.NAMES)
def test_what_once_failed_and_some_new_input_is_accepted_or_refused(kind: str) -> None:
    totals = Totals()
    run_worker(Stretch(kind, 7, 0, QUICK[kind], corpus=True), totals)
    assert {one.signature: one.text for one in totals.smallest.values()} == {}
    assert totals.accepted > 0 or kind == "caches"  # of a damaged cache nothing is left: it is built again
    assert totals.refused > 0
    assert totals.checked == QUICK[kind] + len(read_corpus(kind))


def test_the_corpus_is_of_known_kinds_and_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= set(kinds.NAMES)
    assert sum(path.stat().st_size for path in files) < 500_000


@pytest.mark.parametrize(
    ("variables", "control"),
    [
        ({"PROFILER_OPTIONS": '{"activities": [[]], "window": [1, [2]], "level": {}}', "RANK": "-1"}, b"[" * 60_000),
        ({"PROFILER_OPTIONS": "[" * 90_000, "RANK": "9" * 400, VARIABLE: '{"folder": 1}'}, b"\xff\xfe{"),
        (
            {
                VARIABLE: '{"folder": "/", "name": "x", "processes": 9, "timeout_s": 1e300}',
                "STEPSCOPE_EVENTS": ".",
                "WORLD_SIZE": "x",
                "CUDA_VISIBLE_DEVICES": ",,-1,x",
            },
            b'{"window": [1e400, NaN]}',
        ),
    ],
)
def test_a_training_among_hostile_words_ends_as_it_would_without(
    tmp_path: Path, variables: dict[str, str], control: bytes
) -> None:
    (tmp_path / "notes.json").write_text("[1]", "utf-8")
    done = train(tmp_path, variables, control)
    assert (done.returncode, done.stdout) == (7, b"trained\n"), done.stderr
    assert b"Traceback" not in done.stderr
