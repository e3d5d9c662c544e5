"""The sizes of files and functions, the number of parameters and of broad excepts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES = 500
FUNCTION_LINES = 60
PARAMETERS = 6
# Edges where anything may come: each broad except has a comment and a log line there.
BROAD_EXCEPT_ROOMS = (
    "collector/session/profiler.py",
    "collector/context/signals.py",
    "collector/workers/guard.py",
    "collector/workers/entry.py",
)
CODE_FOLDERS = ("collector", "profiler_server", "frontend", "tests", "benchmarks", "examples")


def list_files(*suffixes: str) -> Iterator[Path]:
    for folder in CODE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = any(part in ("vendor", "node_modules", "__pycache__") for part in path.parts)
            if path.suffix in suffixes and not hidden:
                yield path


def list_functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in list_files(".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def test_files_stay_readable() -> None:
    lengths = {
        str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in list_files(".py", ".css", ".html")
    }
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_javascript_modules_stay_small() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in list_files(".js")}
    assert {name: lines for name, lines in lengths.items() if lines > 300} == {}


def test_functions_stay_short() -> None:
    lengths = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in list_functions()}
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


def test_functions_take_few_parameters() -> None:
    counts = {}
    for name, node in list_functions():
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        counts[name] = len([a for a in arguments if a.arg not in ("self", "cls")])
    # The public constructor and web endpoints list their options by name: that is their documentation.
    public = (
        "collector/session/profiler.py",
        "profiler_server/cli.py",
        "profiler_server/web/routes",
        "profiler_server/commands",
    )
    assert {n: c for n, c in counts.items() if c > PARAMETERS and not n.startswith(public)} == {}
