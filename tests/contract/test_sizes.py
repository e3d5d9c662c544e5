"""The sizes of files and functions, the number of parameters and of broad excepts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES = 450  # 400 is what CONTRIBUTING.md asks for; a table of declarations may be somewhat longer
FUNCTION_LINES = 60
PARAMETERS = 6
# Edges where anything may come; everywhere else `collector.edge.Edge` is the edge, or the errors are named.
BROAD_EXCEPT_ROOMS = (
    "collector/context",
    "collector/signals",
    "collector/workers/tally.py",
    "profiler_server/page.py",
    "profiler_server/derive",
    "profiler_server/web",
)
CODE_FOLDERS = ("collector", "profiler_server", "stepscope", "frontend", "tests", "benchmarks", "examples")


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


def list_broad_excepts() -> Iterator[tuple[str, ast.ExceptHandler, str]]:
    """Return file, handler and line of every handler in the product that stops any exception and does not pass it on."""
    for path in list_files(".py"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(("collector/", "profiler_server/")):
            continue
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _raises(node):
                yield name, node, lines[node.lineno - 1]


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(statement, ast.Raise) for statement in handler.body)


def test_any_exception_is_stopped_at_an_edge_only_and_the_line_says_why() -> None:
    found = list(list_broad_excepts())
    assert [f"{name}:{node.lineno}" for name, node, _ in found if not name.startswith(BROAD_EXCEPT_ROOMS)] == []
    reasons = {
        f"{name}:{node.lineno}": line.partition("#")[2].replace("noqa: BLE001", "") for name, node, line in found
    }
    assert [place for place, reason in reasons.items() if len(reason.split()) < 3] == []


def test_every_room_of_edges_holds_one() -> None:
    names = {name for name, _, _ in list_broad_excepts()}
    assert [room for room in BROAD_EXCEPT_ROOMS if not any(name.startswith(room) for name in names)] == []
