"""docs/format.md says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from collector.format.phases import PHASE_NAMES
from collector.format.schema.tables import TABLES
from tests.support.format_document import build_document

ROOT = Path(__file__).parents[2]


def test_format_document_is_fresh() -> None:
    stored = (ROOT / "docs/format.md").read_text(encoding="utf-8")
    assert stored == build_document(), "stale: run `python -m tests.support.format_document docs/format.md`"


def test_every_column_has_a_sentence() -> None:
    meanings = {f"{table.name}.{column.name}": column.meaning for table in TABLES.values() for column in table.columns}
    assert [name for name, meaning in meanings.items() if len(meaning) < 5 or not meaning.endswith((".", "…"))] == []


def test_steps_has_one_column_per_phase() -> None:
    names = set(TABLES["steps"].column_names)
    assert {f"{phase}_ns" for phase in PHASE_NAMES} <= names


def test_time_columns_are_integer_nanoseconds() -> None:
    wrong = [
        f"{table.name}.{column.name}"
        for table in TABLES.values()
        for column in table.columns
        if column.name.endswith("_ns") and (column.unit != "ns" or column.dtype != "int64")
    ]
    assert wrong == []
