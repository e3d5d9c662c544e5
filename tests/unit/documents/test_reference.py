"""The pages of docs/reference that are made from code say what the code says."""

from __future__ import annotations

import pytest

from tests.support.reference import PAGES, ROOT


@pytest.mark.parametrize("page", PAGES)
def test_a_page_made_from_code_is_fresh(page: str) -> None:
    stored = (ROOT / "docs/reference" / page).read_text("utf-8")
    assert stored == PAGES[page](), "stale: run `python -m tests.support.reference`"


def test_every_rule_states_a_threshold() -> None:
    rules = PAGES["rules.md"]().split("\n## ")[1:]
    assert [rule.partition("\n")[0] for rule in rules if "- Threshold" not in rule] == []


def test_every_option_of_the_commands_has_a_meaning() -> None:
    rows = [line for line in PAGES["options.md"]().splitlines() if line.startswith("| `")]
    assert len(rows) > 60
    assert [row for row in rows if not row.split("|")[-2].strip()] == []


def test_every_name_of_the_interface_has_a_sentence() -> None:
    lines = PAGES["api.md"]().splitlines()
    assert [line for line in lines if line.startswith("- `") and line.rstrip().endswith("`:")] == []
