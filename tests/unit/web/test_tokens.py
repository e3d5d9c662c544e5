"""Colours: text can be read on its ground, and a category has the colour that charts give it."""

from __future__ import annotations

import re

import pytest

from collector.format.phases import PALETTE
from profiler_server.web.frontend import find_frontend

FIGURES = (find_frontend() / "static/css/figure.css").read_text("utf-8")
TOKENS = (find_frontend() / "static/css/tokens.css").read_text("utf-8")
TEXT_PAIRS = [
    *((text, ground) for text in ("text", "text-2", "accent") for ground in ("ground", "ground-2")),
    ("text", "ground-3"),
    ("text-2", "ground-3"),
    ("accent", "accent-ground"),
    ("on-accent", "accent"),
    *((kind, ground) for kind in ("good", "warn", "bad") for ground in ("ground", f"{kind}-ground")),
    ("text", "warn-ground"),
    ("text", "bad-ground"),
]


def read_colors(theme: int) -> dict[str, str]:
    blocks = re.findall(r"\{([^}]*color-scheme[^}]*)\}", TOKENS)
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", blocks[theme]))


def luminance(color: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_PAIRS)
def test_text_can_be_read_on_its_ground(theme: int, text: str, ground: str) -> None:
    colors = read_colors(theme)
    assert contrast(colors[text], colors[ground]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("category", sorted(set(PALETTE) - {"idle"}))
def test_text_can_be_read_on_the_parts_of_a_strip(theme: int, category: str) -> None:
    (text,) = re.findall(r"\.strip text \{[^}]*fill: (#[0-9a-f]{6})", FIGURES)
    for selectors, fill in re.findall(r"^((?:\.strip \.on-[a-z]+(?:, )?)+) \{ fill: ([^;]+);", FIGURES, re.MULTILINE):
        if f".on-{category}" in selectors.replace(",", "").split():
            text = re.findall("#[0-9a-f]{6}", fill)[-1 if theme else 0]
    assert contrast(text, read_colors(theme)[category]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_edges_of_fields_and_buttons_can_be_seen(theme: int) -> None:
    colors = read_colors(theme)
    assert contrast(colors["line-strong"], colors["ground"]) >= 3


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_a_category_has_the_colour_of_the_charts(theme: int) -> None:
    colors = read_colors(theme)
    assert {name: colors[name] for name in PALETTE} == {name: pair[theme] for name, pair in PALETTE.items()}


def test_both_themes_name_the_same_colours() -> None:
    assert read_colors(0).keys() == read_colors(1).keys()
