"""Every name that scripts import has a docstring, which docs/reference/api.md is made of."""

from __future__ import annotations

import inspect

import collector


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
