"""Make docs/reference/api.md from the docstrings of `collector`: `python -m tests.support.api_document docs/reference/api.md`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import collector
from collector.format.schema import errors

_HEAD = """# What scripts call

`from stepscope import …`. This page is made from the docstrings (`python -m tests.support.api_document docs/reference/api.md`); a
test fails when it is stale. Times are integers in nanoseconds unless a name says otherwise. A call raises what its entry
names and nothing else; what goes wrong while recording never reaches the training.
"""
_PARAMETER = re.compile(r"^([a-z]\w*): ")
_ORDER = ("Profiler", "Run", "RankRun", "Estimate")
_PROMPTS = (">>>", "...")


def build_reference() -> str:
    """Return the whole text of docs/reference/api.md."""
    names = [name for name in collector.__all__ if not name.startswith("_")]
    values = {name: getattr(collector, name) for name in names}
    kinds = {
        name: value for name, value in values.items() if inspect.isclass(value) and not issubclass(value, Exception)
    }
    kinds |= {kind.__name__: kind for kind in _list_answers(kinds)}
    functions = [
        f"## `{name}{_format_signature(value)}`\n\n{_read_text(value)}\n"
        for name, value in values.items()
        if inspect.isfunction(value)
    ]
    order = sorted(kinds, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    sections = [_HEAD, *(_describe_class(name, kinds[name]) for name in order if name == "Profiler")]
    sections += functions
    sections += [_describe_class(name, kinds[name]) for name in order if name != "Profiler"]
    return "\n".join([*sections, _describe_errors()])


def _list_answers(kinds: dict[str, Any]) -> Iterator[Any]:
    from collector.estimating.estimation import Estimate
    from collector.format.run import RankRun

    yield from (kind for kind in (RankRun, Estimate) if kind.__name__ not in kinds)


def _describe_class(name: str, kind: Any) -> str:
    layers = [layer for layer in reversed(kind.__mro__) if layer.__module__.startswith("collector.")]
    own = any("__init__" in vars(layer) for layer in layers) and not hasattr(kind, "__dataclass_fields__")
    lines = [f"## `{name}{_format_signature(kind.__init__) if own else ''}`", "", _read_text(kind), ""]
    for member, value in (item for layer in layers for item in vars(layer).items()):
        if member.startswith("_"):
            continue
        if isinstance(value, property | cached_property):
            function = value.fget if isinstance(value, property) else value.func
            lines += [f"- `.{member}`: {_read_line(function)}"]
        elif inspect.isfunction(value):
            lines += [f"- `.{member}{_format_signature(value)}`: {_read_line(value)}"]
    return "\n".join([*lines, ""])


def _describe_errors() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")
    return "\n".join(["## Errors", "", tree[0], "", "```", tree[2], "```", ""])


def _read_text(value: Any) -> str:
    """Return a docstring as Markdown: examples as code with the output in comments, parameters as a list."""
    lines: list[str] = []
    is_code = False
    for line in inspect.cleandoc(value.__doc__ or "").splitlines():
        begins = line.startswith(_PROMPTS)
        if begins != is_code and (begins or not line):
            lines.append("```" if is_code else "```python")
            is_code = begins
        lines.append(line[4:] if begins else f"# {line}" if is_code else _PARAMETER.sub(r"- `\1`: ", line))
    return "\n".join([*lines, "```"] if is_code else lines)


def _read_line(value: Any) -> str:
    lines = inspect.cleandoc(value.__doc__ or "").splitlines()
    examples = [f"`{line[4:]}`" for line in lines if line.startswith(_PROMPTS)]
    words = " ".join(line for line in lines if not line.startswith(_PROMPTS)).split()
    return " ".join([*words, *(["For example:", *examples] if examples else [])])


def _format_signature(function: Any) -> str:
    signature = inspect.signature(function)
    shown = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return str(signature.replace(parameters=shown, return_annotation=signature.empty))


if __name__ == "__main__":
    (Path("docs/reference") / Path(sys.argv[1]).name).write_text(build_reference(), encoding="utf-8")
