"""A page of HTML as plain data: what is read, what is pointed to, and the data of its figures."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from tests.snapshot.plain import Plain, shorten

_LAYOUT = ("class", "id")
"""Attributes that say how something looks or is found, not what it is."""
_LINKS = ("/runs/", "/compare", "/api/")


class _Reader(HTMLParser):
    """Collects lines: one for each text, and one for each tag that has an attribute other than those of the layout."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.data: list[Plain] = []
        self.addresses: list[str] = []
        self._is_data = self._is_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_data, self._is_style = tag == "script", tag == "style"
        kept = [(name, value or "") for name, value in attrs if name not in _LAYOUT]
        self.addresses += [value for _, value in kept if value.startswith(_LINKS)]
        if kept and tag not in ("link", "script", "meta"):
            self.lines.append(f"<{tag} {' '.join(f'{name}={value!r}' for name, value in kept)}>")

    def handle_endtag(self, tag: str) -> None:
        self._is_data = self._is_style = False

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if self._is_data and text:
            self.data.append(shorten(json.loads(data)))
        elif text and not self._is_style:
            self.lines.append(text)


def read_page(text: str) -> tuple[Plain, list[str]]:
    """Return the lines and the data of a page, and the addresses on this server that it points to, each once."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return {"lines": reader.lines, "data": reader.data}, list(dict.fromkeys(reader.addresses))
