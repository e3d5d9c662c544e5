"""What is derived from runs lies in the one store that a server or a command holds; no module keeps results by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_rooms import list_modules

ROOMS = ("profiler_server.", "collector.format.", "collector.hangs.", "collector.traces.", "collector.estimating.")
KEPT = {
    "collector.format.stored_files: LENDERS",  # who fetches files, and no results
    "profiler_server.web.patience: _silent",  # connections that are open
    "profiler_server.web.patience: _waiting",
}
KEEPERS = ("Cache", "Store", "Background", "defaultdict", "OrderedDict", "Counter", "deque", "lru_cache", "cache")


def list_caches(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module, or of its classes, that can keep what functions return.

    A function without arguments may hold its result: a table that is shipped with the package.
    """
    scopes: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for scope in scopes:
        for node in scope.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _keeps(node.value):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                yield f"{module}: {ast.unparse(target)}"
            if (
                isinstance(node, ast.FunctionDef)
                and any(map(_is_cache, node.decorator_list))
                and ast.unparse(node.args)
            ):
                yield f"{module}: {node.name}"


def _keeps(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    if not isinstance(value, ast.Call):
        return False
    is_empty = ast.unparse(value.func) in ("dict", "list", "set") and not value.args and not value.keywords
    return is_empty or _name(value.func).endswith(KEEPERS)


def _is_cache(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _name(called) in ("cache", "lru_cache")


def _name(function: ast.expr) -> str:
    function = function.value if isinstance(function, ast.Subscript) else function
    function = function.func if isinstance(function, ast.Call) else function
    return ast.unparse(function).rpartition(".")[2]


def test_no_module_keeps_results() -> None:
    trees = ((name, ast.parse(path.read_text("utf-8"))) for name, path in list_modules() if name.startswith(ROOMS))
    assert {found for name, tree in trees for found in list_caches(name, tree)} == KEPT


@pytest.mark.parametrize(
    "kept",
    [
        "_KNOWN = {}",
        "_KNOWN: dict[str, int] = {}",
        "_KNOWN: list[int] = []",
        "_KNOWN = OrderedDict[str, int]()",
        "_KNOWN = MemoryCache(4)",
        "_KNOWN = functools.lru_cache(4)(len)",
        "@cache\ndef _KNOWN(a): ...",
        "@functools.lru_cache(4)\ndef _KNOWN(*a): ...",
        "class A:\n    _KNOWN = set()",
    ],
)
def test_what_keeps_results_is_found(kept: str) -> None:
    assert list(list_caches("m", ast.parse(kept))) == ["m: _KNOWN"]


def test_a_table_that_is_parsed_once_is_none(tmp_path: Path) -> None:
    assert list(list_caches("m", ast.parse("@cache\ndef read_words(): ...\nWORDS = {'a': 1}\nx = len('a')"))) == []


def test_what_is_cached_of_a_rank_is_keyed_by_how_the_rank_is_seen() -> None:
    """Through a filter, or without its names, a rank has other figures: `RankRun.key` says so, its folder does not."""
    # A timeline is that of the whole rank, whatever lens it was asked for through; `beside` finds a folder.
    whole = ("profiler_server.timeline.cache", "profiler_server.derive.records")
    by_folder = re.compile(
        r"str\((\w+\.)*(rank\.folder|run\.path)\)|@(lru_)?cache\b[^\n]*\ndef \w+\([^)]*: (RankRun|Run)\b"
    )
    found = [
        module
        for module, path in list_modules()
        if module.startswith("profiler_server.") and module not in whole and by_folder.search(path.read_text("utf-8"))
    ]
    assert found == ["profiler_server.web.shell"]  # paths in texts
