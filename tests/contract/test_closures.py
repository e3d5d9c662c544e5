"""What a rule or a page stands on: all modules of ours that it imports, and those import in their turn.

Imports inside functions and for types only count, and so do strings that name a module.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache

import pytest

import collector
from tests.contract.test_rooms import ROOT, list_modules

MOST_OF_A_RULE = 15
MOST_OF_RANKS = 21
"""What the Ranks page stands on now; it may only fall."""
_MODULES = dict(list_modules())
_NAME = re.compile(r"(?:collector|profiler_server)(?:\.\w+)+")


def _resolve(name: str) -> str:
    """Return the module that a name lies in, "" for none of ours but the two packages."""
    while name and name not in _MODULES:
        name = name.rpartition(".")[0]
    return name if "." in name else ""


@cache
def list_imports(module: str) -> frozenset[str]:
    names = set()
    for node in ast.walk(ast.parse(_MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            names.add(node.value)
    return frozenset({_resolve(name) for name in names} - {"", module})


def close(module: str) -> set[str]:
    found: set[str] = set()
    left = [module]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += list_imports(name)
    return found


def test_facts_are_a_leaf() -> None:
    leaves = {"collector.format.phases", "collector.estimating.model", "profiler_server.diagnosis.limits.facts"}
    facts = {name for name in _MODULES if f"{name}.".startswith("profiler_server.facts.")}
    assert len(facts) > 1
    assert {name for fact in facts for name in close(fact)} - facts == leaves


def test_a_rule_stands_on_few_modules() -> None:
    sizes = {name: len(close(name)) for name in _MODULES if name.startswith("profiler_server.diagnosis.rules.")}
    assert {name: size for name, size in sizes.items() if size > MOST_OF_A_RULE} == {}
    assert sizes


def test_the_ranks_page_stands_on_no_more_than_it_did() -> None:
    assert len(close("profiler_server.pages.ranks")) <= MOST_OF_RANKS


@pytest.mark.parametrize(
    "start",
    [
        "import collector",
        "import collector.launch.command",
        "from profiler_server.cli import *; register_commands()",
    ],
)
def test_what_every_start_imports_is_light(start: str) -> None:
    code = f"import sys; {start}; print([m for m in ('torch', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_collector_lists_its_public_names_only() -> None:
    assert {name for name in dir(collector) if not name.startswith("__")} == set(collector.__all__) - {"__version__"}
