"""The recipes for CI systems run what is there, with the options that it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from collector.launch.command import _parse
from profiler_server.commands.compare import parse_share

RECIPES = Path(__file__).parents[2] / "examples/ci"


def find_command(name: str) -> list[str]:
    """Return the words of the one line that records pairs."""
    found: list[str] = re.findall(r"profiler-run --pairs .*", (RECIPES / name).read_text(encoding="utf-8"))
    (line,) = found
    return shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize(
    ("name", "against"), [("github.yml", "HEAD^1"), ("gitlab.yml", "$CI_MERGE_REQUEST_DIFF_BASE_SHA")]
)
def test_a_recipe_gives_options_that_there_are(name: str, against: str) -> None:
    given = _parse(find_command(name))
    assert (given.pairs, given.against, given.program.name) == (5, against, "train.py")
    assert parse_share(given.max_slowdown) == 0.05
    assert str(given.markdown) == "gate.md"


def test_what_a_recipe_writes_is_what_it_shows() -> None:
    assert "cat gate.md >>" in (RECIPES / "github.yml").read_text(encoding="utf-8")
    assert f"junit: {_parse(find_command('gitlab.yml')).junit}\n" in (RECIPES / "gitlab.yml").read_text(
        encoding="utf-8"
    )
