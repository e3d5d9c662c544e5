"""Columns of texts, asked by row."""

from __future__ import annotations

import pyarrow as pa

from profiler_server.analysis.device.slices import Texts


def _make(*texts: str | None) -> Texts:
    halves = [pa.array(part, pa.string()).dictionary_encode() for part in (texts[:2], texts[2:])]
    return Texts(pa.chunked_array(halves).unify_dictionaries())


def test_a_test_is_asked_once_of_each_text_and_answers_for_every_row() -> None:
    asked: list[str] = []

    def is_short(text: str) -> bool:
        asked.append(text)
        return len(text) == 1

    assert _make("a", "bb", "a", "bb").match(is_short).tolist() == [True, False, True, False]
    assert sorted(asked) == ["a", "bb"]


def test_null_passes_no_test_and_has_no_number() -> None:
    texts = _make("a", None, "b", None)
    assert texts.match(lambda text: True).tolist() == [True, False, True, False]
    assert texts.number({"b": 7}).tolist() == [-1, -1, 7, -1]
