"""Templates: strict, escaped, and with the one set of filters that turns figures into text."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from profiler_server import format as figures
from profiler_server.analysis.operators.kernels import shorten_kernel
from profiler_server.web.links import Links

# What ends a script element, starts a comment in one, or ends a line in old JavaScript.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPES = str.maketrans(_UNSAFE)
_AGES = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


class Templates:
    """Render a template by name. A name that the context lacks is an error, not an empty string."""

    def __init__(self, folder: Path, links: Links) -> None:
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals["links"] = links
        self.environment.filters.update(
            duration=figures.format_duration,
            difference=figures.format_difference,
            share=figures.format_share,
            bytes=figures.format_bytes,
            count=figures.format_count,
            ranks=figures.format_ranks,
            shorten=figures.shorten_middle,
            kernel=shorten_kernel,
            json_block=json_block,
            age=format_age,
            clock=format_clock,
        )

    def render(self, template: str, **context: Any) -> str:
        return self.environment.get_template(template).render(context)


def read_fields(context: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, not copied."""
    return {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}


def json_block(value: Any) -> Markup:
    """Return a value as JSON that is safe inside `<script type="application/json">`; not-a-number becomes null."""
    text = msgspec.json.encode(value, enc_hook=_encode_array).decode()
    return Markup(text.translate(_ESCAPES))


def _encode_array(value: Any) -> Any:
    """Turn numpy arrays and scalars, and pyarrow arrays, into lists and numbers."""
    for method in ("tolist", "to_pylist"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def format_age(unix_ns: int | None, now_ns: int | None = None) -> str:
    """Return how long ago something was, `2 min`, `3 h`; n/a for None."""
    if unix_ns is None:
        return figures.ABSENT
    seconds = ((now_ns or time.time_ns()) - unix_ns) / 1e9
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "now"


def format_clock(unix_ns: int | None) -> str:
    """Return a moment as `2026-11-21 02:44:12 UTC`; n/a for None or a moment that no calendar has."""
    try:
        return figures.ABSENT if unix_ns is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_ns / 1e9))
    except (OverflowError, ValueError, OSError):
        return figures.ABSENT
