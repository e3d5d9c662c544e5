"""The style rules that a strict content policy keeps Plotly from adding are all in the file that stands in for them."""

from __future__ import annotations

import re
from pathlib import Path

from collector.format.phases import PALETTE

STATIC = Path(__file__).parents[3] / "frontend/static"


def test_every_rule_of_the_bundle_is_in_its_style_sheet() -> None:
    bundle = (STATIC / "vendor/plotly/plotly-cartesian.min.js").read_text("utf-8")
    begin = bundle.index('{"X,X div":')
    rules = re.findall(r"""(?:"([^"]+)"|\bY):("[^"]*"|'[^']*')""", bundle[begin : bundle.index("};for(", begin) + 1])
    sheet = (STATIC / "vendor/plotly/plotly.css").read_text("utf-8")
    assert len(rules) > 50
    missing = [
        selector
        for selector, declarations in rules
        if f"{_expand(selector or 'Y')}{{{declarations[1:-1]}}}" not in sheet.splitlines()
    ]
    assert missing == []


def _expand(selector: str) -> str:
    return re.sub(r"\bY\b", ".plotly-notifier", selector.replace("X", ".js-plotly-plot .plotly"))


def test_the_style_sheet_has_the_palette_of_the_charts() -> None:
    tokens = (STATIC / "css/tokens.css").read_text("utf-8")
    found = {name: set(re.findall(rf"--{name}: (#[0-9a-f]{{6}});", tokens)) for name in PALETTE}
    assert found == {name: set(colors) for name, colors in PALETTE.items()}
