"""Imports run down only. The table below is the plan of the house; a room not named in a list must not be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Room -> rooms that it may import. The longest matching prefix decides which room a module is in.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "collector.schema": (),
    "collector.parts": ("collector.schema",),
    "collector.views": ("collector.schema", "collector.parts"),
    "collector.run": ("collector.schema", "collector.parts", "collector.views"),
    "collector.ring": ("collector.schema",),
    "collector.options": ("collector.schema",),
    "collector.edge": (),
    "collector.plugins": ("collector.edge",),
    "collector.notes": ("collector.schema", "collector.ring"),
    "collector.environment": ("collector.schema", "collector.notes"),
    "collector.traces": ("collector.schema", "collector.parts", "collector.plugins", "collector.run"),
    "collector.context": (
        "collector.schema",
        "collector.ring",
        "collector.edge",
        "collector.notes",
        "collector.options",
    ),
    "collector.workers": ("collector.ring", "collector.edge"),
    "collector.marks": ("collector.ring", "collector.schema"),
    "collector.estimating.simulation": (),
    "collector.estimating": ("collector.schema", "collector.environment"),
    "collector.signals": (
        "collector.schema",
        "collector.ring",
        "collector.workers",
        "collector.marks",
        "collector.context",
        "collector.edge",
        "collector.options",
    ),
    "collector.sidecar": (
        "collector.schema",
        "collector.ring",
        "collector.parts",
        "collector.run",
        "collector.traces",
        "collector.edge",
        "collector.notes",
        "collector.plugins",
    ),
    "collector.session": (
        "collector.schema",
        "collector.ring",
        "collector.parts",
        "collector.run",
        "collector.context",
        "collector.edge",
        "collector.environment",
        "collector.notes",
        "collector.options",
        "collector.plugins",
        "collector.signals",
        "collector.sidecar",
        "collector.traces",
    ),
    "collector.demo": ("collector",),
    "collector.launch": ("collector",),
    "profiler_server.format": ("collector.schema",),
    "profiler_server.settings": (),
    # What an average covers: the run list must use the same selection as the pages, so it lies below the store.
    "profiler_server.analysis.steps": (
        "collector.schema",
        "profiler_server.analysis.intervals",
        "profiler_server.analysis.results",
    ),
    "profiler_server.analysis.evaluation": ("profiler_server.analysis.results", "profiler_server.analysis.steps"),
    "profiler_server.analysis.noise": ("profiler_server.analysis.intervals",),
    "profiler_server.analysis.intervals": (),
    "profiler_server.analysis.results": (),
    "profiler_server.store": (
        "collector.schema",
        "collector.parts",
        "collector.run",
        "collector.traces",
        "profiler_server.analysis.evaluation",
        "profiler_server.analysis.noise",
        "profiler_server.analysis.steps",
        "profiler_server.analysis.results",
    ),
    "profiler_server.analysis": (
        "collector.estimating.simulation",
        "collector.schema",
        "collector.parts",
        "collector.run",
        "profiler_server.store",
        "profiler_server.format",
    ),
    "profiler_server.diagnosis.case": ("collector.schema", "profiler_server.analysis", "profiler_server.format"),
    "profiler_server.rules": (
        "collector.schema",
        "profiler_server.analysis",
        "profiler_server.diagnosis.case",
        "profiler_server.format",
    ),
    "profiler_server.diagnosis": (
        "collector.schema",
        "collector.parts",
        "collector.run",
        "profiler_server.store",
        "profiler_server.analysis",
        "profiler_server.rules",
        "profiler_server.format",
    ),
    "profiler_server.timeline": (
        "collector.traces",
        "collector.views.trace_text",
        "collector.schema",
        "collector.parts",
        "collector.run",
        "profiler_server.store",
        "profiler_server.format",
        "profiler_server.analysis",
    ),
    "profiler_server.figures": ("profiler_server.format", "collector.schema"),
    "profiler_server.page": (
        "collector.run",
        "collector.schema",
        "profiler_server.analysis.narrowing",
        "profiler_server.store",
    ),
    "profiler_server.report": (
        "collector.schema",
        "collector.run",
        "profiler_server.store",
        "profiler_server.analysis",
        "profiler_server.diagnosis",
        "profiler_server.format",
    ),
    "profiler_server.pages": (
        "collector.schema",
        "collector.run",
        "profiler_server.store",
        "profiler_server.analysis",
        "profiler_server.diagnosis",
        "profiler_server.timeline",
        "profiler_server.figures",
        "profiler_server.page",
        "profiler_server.format",
    ),
    "profiler_server.web": (
        "collector.schema",
        "collector.parts",
        "collector.run",
        "collector.traces",
        "profiler_server.settings",
        "profiler_server.store",
        "profiler_server.analysis",
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
}

# Rooms of plug-ins: their files must not import each other.
PLUG_IN_ROOMS = (
    "collector.schema.tables",
    "collector.signals",
    "collector.sidecar.assemblers",
    "collector.traces.formulas",
    "profiler_server.rules",
    "profiler_server.pages",
    "profiler_server.web.routes",
)
# Modules of a plug-in room that every plug-in may use.
SHARED_IN_ROOM: set[str] = set()


def list_modules() -> Iterator[tuple[str, Path]]:
    for package in ("collector", "profiler_server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def find_room(module: str) -> str | None:
    rooms = [room for room in MAY_IMPORT if module == room or module.startswith(room + ".")]
    return max(rooms, key=len) if rooms else None


def list_imports(path: Path) -> set[str]:
    """Return the absolute modules that a file imports, at its top or inside a function; not those for types only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_module_is_in_a_room() -> None:
    roots = {"collector", "profiler_server"}
    assert [name for name, _ in list_modules() if name not in roots and find_room(name) is None] == []


def test_imports_run_down_only() -> None:
    wrong = []
    for module, path in list_modules():
        room = find_room(module)
        if room is None:
            continue
        allowed = (room, *MAY_IMPORT[room])
        for name in list_imports(path):
            if name.split(".")[0] not in ("collector", "profiler_server"):
                continue
            if not any(name == a or name.startswith(a + ".") for a in allowed):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_plug_ins_do_not_import_each_other() -> None:
    wrong = []
    for module, path in list_modules():
        room = next((r for r in PLUG_IN_ROOMS if module.startswith(r + ".")), None)
        if room is None or module in SHARED_IN_ROOM:
            continue
        own = ".".join(module.split(".")[: room.count(".") + 2])
        for name in list_imports(path):
            if name.startswith(room + ".") and not name.startswith((own + ".", own)):
                target = ".".join(name.split(".")[: room.count(".") + 2])
                if target not in SHARED_IN_ROOM and (ROOT / Path(*target.split("."))).with_suffix(".py").exists():
                    wrong.append(f"{module} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("package", ["collector", "profiler_server"])
def test_only_signals_import_torch(package: str) -> None:
    # torchrun's own parser is asked where its arguments end, in the process that becomes torchrun.
    allowed = ("collector.signals", "collector.demo", "collector.launch.torchrun")
    wrong = [
        module
        for module, path in list_modules()
        if module.startswith(package) and not module.startswith(allowed)
        for name in list_imports(path)
        if name.split(".")[0] == "torch"
    ]
    assert wrong == []


def test_importing_the_collector_is_light() -> None:
    code = "import sys, collector; print([m for m in ('torch', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


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
