"""Addresses, static files and templates."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import numpy as np
import pytest

from profiler_server.web import frontend
from profiler_server.web.frontend import StaticFiles, Templates, format_age, format_clock, json_block
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


def test_the_version_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "CHECK_INTERVAL_S", -1.0)
    (tmp_path / "a.js").write_text("one")
    files = StaticFiles(tmp_path)
    first = files.version
    assert files.version == first
    (tmp_path / "a.js").write_text("another")
    assert files.version != first
    (tmp_path / "a.js").write_text("one")
    assert files.version == first


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd", "a\0b", "sub", "link"])
def test_nothing_outside_is_found(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "static"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert StaticFiles(folder).find(path) is None


def test_a_json_block_cannot_leave_its_element() -> None:
    hostile = {"name": "</script><script>alert(1)</script><!-- &amp; \u2028"}
    text = json_block(hostile)
    assert "<" not in text
    assert ">" not in text
    assert "&" not in text
    assert json.loads(text) == hostile


def test_a_json_block_takes_arrays_and_writes_no_nan() -> None:
    assert json.loads(json_block({"x": np.array([1, 2]), "y": float("nan"), "z": np.float64(0.5)})) == {
        "x": [1, 2],
        "y": None,
        "z": 0.5,
    }


def test_templates_escape_and_are_strict(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("{{ name }}")
    templates = Templates(tmp_path, Links(lambda: "v"))
    assert templates.render("a.html", name="<b>") == "&lt;b&gt;"
    with pytest.raises(jinja2.UndefinedError):
        templates.render("a.html")


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "now"), (125, "2 min"), (3 * 3600, "3 h"), (40 * 86400, "1 mo"), (800 * 86400, "2 y")]
)
def test_ages(seconds: int, text: str) -> None:
    now_ns = 1_800_000_000 * 10**9
    assert format_age(now_ns - seconds * 10**9, now_ns) == text


def test_moments_that_no_calendar_has() -> None:
    assert format_clock(None) == "n/a"
    assert format_clock(2**200) == "n/a"
    assert format_clock(0) == "1970-01-01 00:00:00 UTC"
