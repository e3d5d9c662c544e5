"""One module removes and replaces files: any other use of what does so is found here, under whatever name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = "collector/format/schema/removal.py"
FORBIDDEN = {
    "shutil": {"rmtree", "move"},
    "os": {"remove", "unlink", "rmdir", "removedirs", "rename", "renames", "replace"},
    "tempfile": {"TemporaryDirectory", "mkdtemp", "mkstemp", "NamedTemporaryFile"},
}
METHODS = {"unlink", "rmdir", "rmtree", "removedirs"}
"""Methods of paths under names that nothing else has."""
RENAMES = {"rename", "replace"}
"""Methods of paths that take one argument; those of texts, tables and dates take others."""


def find_removals(source: str) -> list[str]:
    """Return the places in a source text that remove or replace files by other means than the allowed module."""
    tree = ast.parse(source)
    modules, names = _read_imports(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if node.attr in METHODS or (module and node.attr in FORBIDDEN[module]):
                found.append(f"{node.lineno} {ast.unparse(node)}")
        elif isinstance(node, ast.Name) and node.id in names:
            found.append(f"{node.lineno} {node.id}")
        elif isinstance(node, ast.Call) and _is_rename_of_path(node, modules):
            found.append(f"{node.lineno} {ast.unparse(node.func)}")
    return found


def _read_imports(tree: ast.AST) -> tuple[dict[str, str], set[str]]:
    """Return the names that stand for a module, with that module, and the names that stand for what is forbidden."""
    modules: dict[str, str] = {}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in FORBIDDEN}
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN:
            forbidden = FORBIDDEN[node.module]
            names |= {alias.asname or alias.name for alias in node.names if alias.name in forbidden}
    return modules, names


def _is_rename_of_path(call: ast.Call, modules: dict[str, str]) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in RENAMES:
        return False
    is_module = isinstance(call.func.value, ast.Name) and call.func.value.id in {*modules, "dataclasses", "removal"}
    return not is_module and len(call.args) == 1 and not call.keywords


def test_only_one_module_removes_or_replaces_files() -> None:
    found = []
    for package in ("collector", "profiler_server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name != ALLOWED:
                found += [f"{name}:{place}" for place in find_removals(path.read_text(encoding="utf-8"))]
    assert found == []


def test_the_allowed_module_is_seen_by_this_check() -> None:
    assert len(find_removals((ROOT / ALLOWED).read_text(encoding="utf-8"))) >= 5


@pytest.mark.parametrize(
    "source",
    [
        "import shutil\nshutil.rmtree(folder)",
        "import shutil as s\ns.rmtree(folder)",
        "from shutil import rmtree\nrmtree(folder)",
        "from shutil import rmtree as away\nstack.callback(away, folder)",
        "import shutil\nstack.callback(shutil.rmtree, folder, ignore_errors=True)",
        "import shutil\nshutil.move(a, b)",
        "import os\nos.remove(path)",
        "import os\nos.rename(a, b)",
        "import os\nos.replace(a, b)",
        "from os import unlink\nunlink(path)",
        "def late():\n    import os as system\n    system.rmdir(path)",
        "path.unlink(missing_ok=True)",
        "list(map(Path.unlink, paths))",
        "path.parent.rmdir()",
        "path.rename(target)",
        "path.with_name('x').replace(target)",
        "import tempfile\nwith tempfile.TemporaryDirectory() as folder: pass",
        "from tempfile import mkdtemp\nmkdtemp()",
    ],
)
def test_each_way_to_remove_is_found(source: str) -> None:
    assert len(find_removals(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "'a-b'.replace('-', '_')",
        "import dataclasses\ndataclasses.replace(note)",
        "from dataclasses import replace\nreplace(note, name='x')",
        "moment.replace(tzinfo=None)",
        "names.remove('x')",
        "import os\nos.path.exists(path)",
        "import shutil\nshutil.which('git')",
        "from collector.format.schema.removal import replace\nreplace(source, target)",
    ],
)
def test_what_removes_no_file_is_left_alone(source: str) -> None:
    assert find_removals(source) == []
