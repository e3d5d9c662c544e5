"""Arrays that are built of buffers are those that Arrow itself would make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from collector.format import arrays
from collector.format.arrays import encode_texts, from_numbers, from_texts, from_values, to_integers
from tests.support.traces import training_steps, write_trace

NUMBERS = [
    np.arange(9), np.array([], np.int64), np.arange(20) % 3 == 0, np.array([0.5, np.nan]), np.arange(5, dtype=np.int32),
    np.arange(10)[::2], np.array([1, 2], np.uint64),
]  # fmt: skip
LISTS: list[tuple[list[Any], pa.DataType]] = [
    ([1, None, 3], pa.int64()), ([1, 2], pa.int32()), ([0.5, None, float("nan")], pa.float64()), ([], pa.string()),
    ([True, None, False], pa.bool_()), (["a", None, "ü", ""], pa.string()), ([None, None], pa.int64()),
    ([1, 2.5], pa.float64()), (["a"] * 9, pa.string()),
]  # fmt: skip


@pytest.mark.parametrize("values", NUMBERS, ids=lambda values: str(values.dtype))
def test_numbers_are_what_arrow_makes_of_them(values: np.ndarray) -> None:
    absent = np.arange(len(values)) % 2 == 1
    assert str(from_numbers(values)) == str(pa.array(values))
    assert str(from_numbers(values, absent)) == str(pa.array(values, mask=absent))
    from_numbers(values, absent).validate(full=True)


@pytest.mark.parametrize(
    "values", [[], [None, None], ["b", "a", None, "b"], ["\ud800x", "?x", "\ud801x", "a", "?x"]], ids=ascii
)
def test_texts_that_repeat_are_the_dictionary_that_arrow_makes_of_them(values: list[str | None]) -> None:
    found = encode_texts(values)
    found.validate(full=True)
    assert found.equals(from_texts(values).dictionary_encode())


@pytest.mark.parametrize(("values", "kind"), LISTS, ids=str)
def test_lists_are_what_arrow_makes_of_them(values: list[Any], kind: pa.DataType) -> None:
    found = from_values(values, kind)
    found.validate(full=True)
    assert str(found) == str(pa.array(values, kind))


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [pa.array([], pa.int64())],
        [pa.array([1, 2, 3, 4]).slice(1, 2)],
        [pa.array([1]), pa.array([], pa.int64()), pa.array([2, 3]).slice(1)],
    ],
    ids=["none", "empty", "slice", "several"],
)
def test_integers_of_a_column_are_those_of_its_chunks(chunks: list[pa.Array]) -> None:
    column = pa.chunked_array(chunks, pa.int64())
    found = to_integers(column)
    assert found.dtype == np.int64
    assert found.tolist() == column.to_pylist()


@pytest.mark.parametrize("values", [[1 << 40], np.array([1 << 40])], ids=["list", "array"])
def test_numbers_that_do_not_fit_are_refused(values: Any) -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_values(values, pa.int32())


@pytest.mark.parametrize("most", [None, 2])
def test_half_characters_become_question_marks(most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if most is not None:
        monkeypatch.setattr(arrays, "_OFFSETS_END", most)
    assert from_texts(["a\ud800b", None, "c"]).to_pylist() == ["a?b", None, "c"]


def test_an_import_does_without_pandas(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    code = (
        "import sys; from collector.traces.importing import import_trace; import_trace(*sys.argv[1:]); "
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(tmp_path / "run")], check=True, timeout=120)
