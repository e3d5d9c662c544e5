"""docs/reference/api.md says what the docstrings say, and every public name has one."""

from __future__ import annotations

import inspect
from pathlib import Path

import collector
from tests.support.api_document import build_reference

ROOT = Path(__file__).parents[3]


def test_the_reference_is_fresh() -> None:
    stored = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert stored == build_reference(), "stale: run `python -m tests.support.api_document docs/reference/api.md`"


def test_every_public_name_and_method_has_a_docstring() -> None:
    public = {name: getattr(collector, name) for name in collector.__all__ if not name.startswith("_")}
    members = {
        f"{name}.{member}": value
        for name, kind in public.items()
        if inspect.isclass(kind) and not issubclass(kind, Exception)
        for member, value in vars(kind).items()
        if not member.startswith("_") and inspect.isfunction(value)
    }
    assert [
        name for name, value in {**public, **members}.items() if not isinstance(value, type) and not value.__doc__
    ] == []
