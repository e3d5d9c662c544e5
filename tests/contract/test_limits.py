"""Thresholds lie in `diagnosis/limits`, where both sides of each are tested; outside of it, fewer from change to change."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from profiler_server.diagnosis import limits
from profiler_server.format import read_texts

ROOT = Path(__file__).parents[2] / "profiler_server"
DONE = ("diagnosis/rules", "analysis/replay")
"""Rooms that hold none of their own."""
MOST_OUTSIDE = 39
"""How many there are elsewhere; it may only fall, to 0."""
_THRESHOLD = re.compile(
    r"^_?(LEAST|MIN|FEWEST)_|_(FRAC|RATIO|FACTOR|NS|BYTES|SPREAD|ERROR|NEED|SAVED|GAIN|CORES|SAMPLES)$"
)


def list_thresholds(*rooms: str) -> Iterator[str]:
    """Yield numbers of modules whose names are those of thresholds."""
    for path in sorted(path for room in rooms for path in (ROOT / room).rglob("*.py")):
        if "limits" in str(path.relative_to(ROOT)):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else ()
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            is_number = isinstance(node, ast.Assign) and not any(
                isinstance(part, ast.Call | ast.Name | ast.Constant)
                and not (isinstance(part, ast.Constant) and isinstance(part.value, int | float))
                for part in ast.walk(node.value)
            )
            yield from (f"{path.relative_to(ROOT)}: {name}" for name in names if is_number and _THRESHOLD.search(name))


def test_rules_and_replay_hold_no_threshold_of_their_own() -> None:
    assert list(list_thresholds(*DONE)) == []


def test_thresholds_outside_of_the_limits_become_fewer() -> None:
    assert len(list(list_thresholds("diagnosis", "facts", "analysis"))) <= MOST_OUTSIDE


def test_a_limit_that_a_text_names_is_of_one_family_alone_or_the_same_in_all() -> None:
    families = [vars(import_module(f"{limits.__name__}.{one.name}")) for one in pkgutil.iter_modules(limits.__path__)]
    texts = "\n".join(text for entry in read_texts()["texts"].values() for text in entry.values())
    named = set(re.findall(r"\{limits\.(\w+)", texts))
    values = {name: {family[name] for family in families if name in family} for name in named}
    assert len(named) > 50
    assert {name: found for name, found in values.items() if len(found) != 1} == {}
