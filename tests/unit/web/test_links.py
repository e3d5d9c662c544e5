"""Addresses are quoted, whatever a run is called."""

from __future__ import annotations

import pytest

from profiler_server.web.links import Links, encode_query

LINKS = Links(lambda: "abc")


def test_pages_of_a_run() -> None:
    assert LINKS.page("team/gpt 1") == "/runs/team/gpt%201/"
    assert LINKS.page("a", "steps", rank=3, step=17, q=None) == "/runs/a/steps?rank=3&step=17"
    assert LINKS.api("a/b", "tables", "x/y", page=2) == "/api/v1/runs/a/b/tables/x%2Fy?page=2"
    assert LINKS.static("js/shell.js") == "/static/abc/js/shell.js"


@pytest.mark.parametrize("name", ['"><script>', "a?b=c#d", "100%", "über/日本", "javascript:alert(1)"])
def test_a_hostile_name_stays_inside_the_path(name: str) -> None:
    path = LINKS.page(name)
    assert path.startswith("/runs/")
    assert path.isascii()
    assert not set(path) & set("<>\"'?#: ")


def test_evidence_keeps_its_own_query_and_the_rank() -> None:
    assert LINKS.place("a", "data", 2, "?tab=interval&rank=5") == "/runs/a/data?rank=5&tab=interval"
    assert LINKS.place("a", "steps", None, "step=3") == "/runs/a/steps?step=3"


def test_an_empty_query_is_no_query() -> None:
    assert encode_query({"a": None}) == ""
    assert encode_query({"a": True, "b": 0}) == "?a=true&b=0"
