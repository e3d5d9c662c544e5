"""The texts of advice: each entry is whole, and what stands in it is there."""

from __future__ import annotations

import string
from dataclasses import fields
from pathlib import Path

import pytest

from profiler_server.diagnosis.limits import list_limits
from profiler_server.facts.case import Text
from profiler_server.format import read_texts

SERVER = Path(__file__).parents[3] / "profiler_server"
TEXTS = read_texts()["texts"]
SENTENCES = read_texts()["sentences"]
BASES = {"window", "validation_share", "workers_take_processors", "worth_trying"}
"""Entries that have only what their cases share."""


@pytest.mark.parametrize("name", TEXTS)
def test_an_entry_is_whole(name: str) -> None:
    wanted = {field.name for field in fields(Text)}
    assert set(TEXTS[name]) <= wanted
    assert name in BASES or wanted - set(TEXTS[name]) <= {"assumption", "removed"}
    said = [field for text in TEXTS[name].values() for _, field, _, _ in string.Formatter().parse(text) if field]
    assert {field for field in said if field.startswith("limits.")} <= {f"limits.{limit}" for limit in list_limits()}


def test_every_entry_is_said() -> None:
    files = (*(SERVER / "diagnosis/rules").glob("*.py"), SERVER / "diagnosis/knobs.py")
    code = "\n".join(path.read_text("utf-8") for path in files)
    assert [name for name in TEXTS if name not in BASES and f'"{name.rpartition(".")[2]}' not in code
            and f'"{name}"' not in code] == []  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_every_sentence_is_of_a_case_that_code_finds(name: str) -> None:
    code = "\n".join(path.read_text("utf-8") for path in SERVER.rglob("*.py"))
    unsaid = [
        text
        for text in SENTENCES[name]
        if f'"{text}"' not in code and f"class {text.title().replace('_', '')}" not in code
    ]
    assert unsaid == []


def test_no_field_is_left_unfilled() -> None:
    known = {field for texts in (*TEXTS.values(), *SENTENCES.values()) for text in texts.values()
             for _, field, _, _ in string.Formatter().parse(text) if field}  # fmt: skip
    golden = [path.read_text("utf-8") for path in (SERVER.parent / "tests/golden/words").rglob("*.txt")]
    assert golden
    assert {field for field in known for text in golden if f"{{{field}}}" in text} == set()
