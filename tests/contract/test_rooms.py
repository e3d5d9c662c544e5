"""Imports run down only. The table below is the plan of the rooms; a room not named in a list must not be imported."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("collector", "profiler_server", "stepscope")
OURS = tuple(f"{package}." for package in PACKAGES)
NAMES_MODULE = re.compile(r"collector\.[\w.]+|profiler_server(\.[\w.]+)?")

# Room -> rooms that it may import. The longest matching prefix decides which room a module is in.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "stepscope": ("collector",),
    "stepscope.__main__": ("profiler_server.entry",),
    "collector.format.schema": ("collector.format.phases", "collector.format.switches", "collector.format.words"),
    "collector.format.switches": (),
    "collector.format.words": (),
    "collector.format.phases": (),
    "collector.format.arrays": (),
    "collector.format.intervals": (),
    "collector.format.steps": (
        *("collector.format.arrays", "collector.format.intervals", "collector.format.phases"),
        "collector.format.schema.wording",
    ),
    "collector.format": (),
    "collector.hangs": ("collector.format",),
    "collector.notebook": ("collector.format", "collector.server", "collector.traces.writing"),
    # The one door from a recording to the server, imported where it is asked.
    "collector.server": ("profiler_server",),
    "collector.ring": ("collector.format.schema", "collector.format.words"),
    "collector.options": ("collector.format.schema", "collector.trackers"),
    "collector.trackers": (),
    "collector.edge": (),
    "collector.git": (),
    "collector.ending": (),
    "collector.expendable": (),
    "collector.version": (),
    "collector.plugins": ("collector.edge",),
    "collector.notes": ("collector.format", "collector.ring"),
    "collector.environment": (),
    "collector.traces": (
        "collector.format",
        "collector.hangs",
        "collector.plugins",
        "collector.version",
    ),
    "collector.traces.kineto.decode": (
        "collector.format",
        "collector.traces.kineto.scratch",
        "collector.traces.source",
    ),
    "collector.traces.kineto.parallel": ("collector.expendable", "collector.traces.kineto.decode"),
    "collector.traces.kineto.classify": (
        *("collector.format", "collector.traces.kineto.decode", "collector.traces.kineto.scratch"),
    ),
    "collector.traces.kineto.steps": (
        *("collector.format", "collector.traces.families", "collector.traces.format"),
        "collector.traces.kineto.classify",
    ),
    "collector.traces.kineto.tables": (
        *("collector.format", "collector.traces.call", "collector.traces.families"),
        *("collector.traces.kineto.classify", "collector.traces.kineto.decode", "collector.traces.kineto.scratch"),
        "collector.traces.kineto.steps",
    ),
    "collector.context": (
        "collector.ring",
        "collector.edge",
        "collector.notes",
        "collector.options",
    ),
    "collector.frames": ("collector.format.schema",),
    "collector.workers": ("collector.ring", "collector.frames", "collector.edge"),
    "collector.marks": ("collector.ring", "collector.format.schema", "collector.edge"),
    "collector.estimating.model": (),
    "collector.estimating.simulation": (
        "collector.estimating.model",
        "collector.format.keeping",
    ),
    "collector.estimating": ("collector.format.schema", "collector.environment"),
    "collector.signals": (
        "collector.format",
        "collector.frames",
        "collector.ring",
        "collector.workers",
        "collector.marks",
        "collector.context",
        "collector.edge",
        "collector.options",
    ),
    "collector.sidecar": (
        "collector.format",
        "collector.frames",
        "collector.hangs",
        "collector.ring",
        "collector.traces",
        "collector.edge",
        "collector.expendable",
        "collector.git",
        "collector.notes",
        "collector.plugins",
    ),
    "collector.storage": (
        "collector.format",
        "collector.edge",
        "collector.expendable",
        "collector.notes",
        "collector.sidecar.process",
    ),
    "collector.session": (
        *("collector.format", "collector.ring", "collector.context", "collector.edge", "collector.expendable"),
        *("collector.environment", "collector.notebook", "collector.notes", "collector.options", "collector.plugins"),
        *("collector.server", "collector.signals", "collector.sidecar", "collector.storage", "collector.trackers"),
        *("collector.version",),
    ),
    "collector.demo": ("collector",),
    "collector.launch": ("collector",),
    "collector.auto": ("collector",),
    "profiler_server.format": ("collector.format",),
    "profiler_server.settings": (),
    "profiler_server.derive": ("collector.edge", "collector.format", "collector.traces.workers"),
    "profiler_server.store": (
        "profiler_server.derive",
        "collector.edge",
        "collector.format",
        "collector.hangs",
        "collector.storage.urls",
        "collector.traces",
    ),
    "profiler_server.fleet": (
        "collector.format",
        "collector.hangs",
        "collector.version",
        "profiler_server.derive",
        "profiler_server.store",
    ),
    "profiler_server.analysis": (
        "profiler_server.derive",
        "collector.estimating.model",
        "collector.estimating.simulation",
        "collector.format",
        "profiler_server.diagnosis.limits",
        "profiler_server.facts",
        "collector.hangs",
        "profiler_server.store",
        "profiler_server.format",
    ),
    "profiler_server.diagnosis.limits": (),
    "profiler_server.facts": (
        "collector.estimating.model",
        "collector.format.phases",
        "profiler_server.diagnosis.limits",
    ),
    "profiler_server.diagnosis.what_if": (
        "collector.estimating.model",
        "collector.format.phases",
        "profiler_server.diagnosis.limits",
        "profiler_server.words",
        "profiler_server.facts",
        "profiler_server.format",
    ),
    "profiler_server.words": (
        "profiler_server.diagnosis.limits",
        "profiler_server.facts",
        "profiler_server.format",
    ),
    "profiler_server.diagnosis.knobs": (
        "collector.format.phases",
        "profiler_server.diagnosis.limits",
        "profiler_server.facts",
    ),
    "profiler_server.diagnosis.rules": (
        "collector.estimating.model",
        "collector.format.phases",
        "profiler_server.diagnosis.limits",
        "profiler_server.diagnosis.knobs",
        "profiler_server.diagnosis.what_if",
        "profiler_server.words",
        "profiler_server.facts",
        "profiler_server.format",
    ),
    "profiler_server.diagnosis": (
        "profiler_server.derive",
        "collector.edge",
        "collector.format",
        "collector.hangs",
        "collector.plugins",
        "profiler_server.store",
        "profiler_server.analysis",
        "profiler_server.facts",
        "collector.estimating.model",
        "collector.estimating.simulation",
        "profiler_server.diagnosis.rules",
        "profiler_server.format",
        "profiler_server.words",
    ),
    "profiler_server.timeline": (
        "collector.format",
        "collector.traces.writing",
        "profiler_server.derive",
        "profiler_server.format",
        "profiler_server.analysis",
        "profiler_server.facts",
    ),
    "profiler_server.figures": ("collector.format", "profiler_server.facts", "profiler_server.format"),
    "profiler_server.notice": (),
    "profiler_server.page": ("collector.format", "profiler_server.derive", "profiler_server.notice"),
    "profiler_server.widgets": ("profiler_server.format",),
    "profiler_server.stack_panel": (
        "collector.format",
        "profiler_server.analysis",
        "profiler_server.facts",
        "profiler_server.diagnosis.limits",
        "profiler_server.words",
        "profiler_server.figures",
        "profiler_server.format",
        "profiler_server.page",
    ),
    "profiler_server.report": (
        "collector.edge",
        "collector.format",
        "collector.hangs",
        "profiler_server.analysis",
        "profiler_server.facts",
        "profiler_server.diagnosis",
        "profiler_server.format",
        "profiler_server.words",
    ),
    "profiler_server.assistant": (
        *("collector.format", "collector.version", "profiler_server.analysis", "profiler_server.format"),
        *("profiler_server.report", "profiler_server.store"),
    ),
    "profiler_server.pages": (
        "collector.format",
        "collector.hangs",
        "profiler_server.derive",
        "profiler_server.analysis",
        "profiler_server.facts",
        "profiler_server.diagnosis",
        "profiler_server.timeline",
        "profiler_server.figures",
        "profiler_server.notice",
        "profiler_server.page",
        "profiler_server.stack_panel",
        "profiler_server.widgets",
        "profiler_server.format",
    ),
    "profiler_server.web": (
        "collector.format",
        "collector.plugins",
        "collector.traces",
        "collector.version",
        "profiler_server.settings",
        "profiler_server.derive",
        "profiler_server.store",
        "profiler_server.fleet",
        "profiler_server.analysis",
        "profiler_server.facts",
        "profiler_server.diagnosis",
        "profiler_server.timeline",
        "profiler_server.figures",
        "profiler_server.page",
        "profiler_server.pages",
        "profiler_server.report",
        "profiler_server.format",
    ),
    "profiler_server.commands": ("profiler_server", "collector"),
    "profiler_server.cli": ("profiler_server", "collector"),
    "profiler_server.__main__": ("profiler_server",),
    "profiler_server.entry": ("profiler_server", "collector"),
}

# Rooms of plug-ins: their files must not import each other.
PLUG_IN_ROOMS = (
    "stepscope",
    "collector.format.schema.tables",
    "collector.signals",
    "collector.sidecar.assemblers",
    "collector.trackers",
    "collector.traces.formats",
    "collector.traces.formulas",
    "profiler_server.diagnosis.rules",
    "profiler_server.commands",
    "profiler_server.pages",
    "profiler_server.web.routes",
)


def list_modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def find_room(module: str) -> str | None:
    rooms = [room for room in MAY_IMPORT if module == room or module.startswith(room + ".")]
    return max(rooms, key=len) if rooms else None


def list_imports(path: Path) -> set[str]:
    """Return the absolute modules that a file imports, at its top or inside a function; not those for types only.

    A text that names a module of ours counts: it is imported by its name, or run.
    """
    found: set[str] = set()
    for node in walk_but_types(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMES_MODULE.fullmatch(node.value):
            found.add(node.value)
    return found


def walk_but_types(node: ast.AST, but_functions: bool = False) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not is_for_types and not (but_functions and isinstance(child, ast.FunctionDef)):
            yield child
            yield from walk_but_types(child, but_functions)


def find_circle(imports: Mapping[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_is_in_a_room() -> None:
    assert [name for name, _ in list_modules() if name not in PACKAGES and find_room(name) is None] == []


def test_imports_run_down_only() -> None:
    wrong = []
    for module, path in list_modules():
        room = find_room(module)
        if room is None:
            continue
        allowed = (room, *MAY_IMPORT[room])
        for name in list_imports(path):
            if name.split(".")[0] not in PACKAGES:
                continue
            if not any(name == a or name.startswith(a + ".") for a in allowed):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    modules = dict(list_modules())
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        at_top = walk_but_types(ast.parse(path.read_text(encoding="utf-8")), but_functions=True)
        named = [
            (node.module, alias.name) for node in at_top if isinstance(node, ast.ImportFrom) for alias in node.names
        ]
        found = {f"{parent}.{name}" if f"{parent}.{name}" in modules else str(parent) for parent, name in named}
        imports[module] = found & modules.keys() - {module}
    assert find_circle(imports) == []


def test_no_rooms_import_each_other() -> None:
    """Wherever in a file the import stands: a room is a folder or a file of a package.

    A file that may import nothing of ours is none, wherever it lies: nothing can come back from it.
    """
    leaves = tuple(room for room, names in MAY_IMPORT.items() if not names and room.count(".") > 1)
    imports: dict[str, set[str]] = {}
    for module, path in list_modules():
        room = ".".join(module.split(".")[:2])
        named = {name for name in list_imports(path) if name.startswith(OURS) and find_room(name) not in leaves}
        found = {".".join(name.split(".")[:2]) for name in named}
        imports.setdefault(room, set()).update(found - {room, *PACKAGES})
    assert find_circle(imports) == []


def test_every_permission_is_used() -> None:
    used: dict[str, set[str]] = {}
    for module, path in list_modules():
        used.setdefault(find_room(module) or "", set()).update(list_imports(path))
    idle = [
        f"{room} never imports {name}"
        for room, names in MAY_IMPORT.items()
        for name in names
        if not any(f"{found}.".startswith(f"{name}.") for found in used.get(room, ()))
    ]
    assert idle == []


def test_plug_ins_do_not_import_each_other() -> None:
    wrong = []
    for module, path in list_modules():
        room = next((r for r in PLUG_IN_ROOMS if module.startswith(r + ".")), None)
        if room is None:
            continue
        own = ".".join(module.split(".")[: room.count(".") + 2])
        for name in list_imports(path):
            if name.startswith(room + ".") and not name.startswith((own + ".", own)):
                target = ".".join(name.split(".")[: room.count(".") + 2])
                if (ROOT / Path(*target.split("."))).with_suffix(".py").exists():
                    wrong.append(f"{module} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("package", ["collector", "profiler_server"])
def test_only_signals_import_torch(package: str) -> None:
    # A launcher's own parser is asked where its arguments end, in the process that becomes the launcher.
    # TensorBoard's writer is torch's.
    allowed = (
        *("collector.signals", "collector.demo", "collector.launch.launchers", "collector.launch.trying"),
        "collector.trackers.tensorboard",
    )
    wrong = [
        module
        for module, path in list_modules()
        if module.startswith(package) and not module.startswith(allowed)
        for name in list_imports(path)
        if name.split(".")[0] == "torch"
    ]
    assert wrong == []


def test_the_server_imports_with_torch_blocked() -> None:
    server = [name for name, _ in list_modules() if name.startswith("profiler_server")]
    code = (
        "import sys, importlib\n"
        "sys.modules['torch'] = None\n"
        f"for name in {server!r}:\n"
        "    if not name.endswith('__main__'): importlib.import_module(name)\n"
        "print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "ok", done.stderr
