"""The advice on a run as a value for scripts and notebooks: its bottleneck, the changes to make, the expected gains."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector.server import say_gain

if TYPE_CHECKING:
    from profiler_server.facts.results import Suggestion


@dataclass(frozen=True)
class Advice:
    """The verdict on a rank and its suggestions, best first, with the fields of `report --json`.

    `silence` is why there are no suggestions, "" if there are some. print() shows text; a notebook shows a list whose
    entries unfold. The object iterates over its suggestions.
    """

    verdict: str
    suggestions: tuple[Suggestion, ...]
    silence: str

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.suggestions)

    def __len__(self) -> int:
        return len(self.suggestions)

    def __getitem__(self, place: int) -> Suggestion:
        return self.suggestions[place]

    def __str__(self) -> str:
        lines = [self.verdict]
        for number, entry in enumerate(self.suggestions, 1):
            lines += [f"{number}. {entry.title}. {say_gain(entry)}.", f"   {entry.measured}", f"   {entry.advice}"]
            lines += [f"       {line}" for line in entry.change.splitlines()]
        return "\n".join(lines if self.suggestions else [*lines, self.silence])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        items = "".join(_render(entry) for entry in self.suggestions)
        listed = f"<ol>{items}</ol>" if items else f"<p>{html.escape(self.silence)}</p>"
        return f"<p><b>{html.escape(self.verdict)}</b></p>{listed}"


def _render(entry: Suggestion) -> str:
    title, gain, measured, advice, change = map(
        html.escape, (entry.title, f"{say_gain(entry)}.", entry.measured, entry.advice, entry.change)
    )
    code = f"<pre>{change}</pre>" if change else ""
    return (
        f"<li><details><summary><b>{title}</b>. {gain}</summary><p>{measured}</p><p>{advice}</p>{code}</details></li>"
    )
