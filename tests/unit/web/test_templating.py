"""What reaches a page is escaped, and what a context lacks is an error."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import numpy as np
import pytest

from profiler_server.web.frontend import Templates, format_age, format_clock, json_block
from profiler_server.web.links import Links


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
