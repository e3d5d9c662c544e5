"""What a library would import in passing is left out for the calling thread alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from collector.context.quiet import leave_out_import

SERVED = """
import sys, torch
from pathlib import Path
from collector import Profiler
find = torch.__getattr__
net = torch.nn.Linear(4, 4)
with Profiler(Path(sys.argv[1]) / "run", window=(2, 2), stacks=False) as profiler, torch.no_grad():
    for _ in range(60):
        net(torch.zeros(2, 4))
print("torch._inductor" in sys.modules, torch.__getattr__ is find)
print(profiler.analyse().table("operators").num_rows > 0)
"""


def test_the_first_window_of_an_inference_imports_no_compiler(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "utf8", "-c", SERVED, str(tmp_path)]  # no fork, in which much is imported already
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["False True", "True"], done.stderr


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package that imports `compiler` where it is asked for it."""
    module = types.ModuleType("package")
    module.__dict__["__getattr__"] = lambda name: f"imported {name}"
    monkeypatch.setitem(sys.modules, "package", module)
    return module


def test_another_thread_finds_the_module_meanwhile(package: types.ModuleType) -> None:
    found: list[object] = []
    with leave_out_import(package, "compiler"):
        thread = threading.Thread(target=lambda: found.append(package.compiler))
        thread.start()
        thread.join()
        found += [hasattr(package, "compiler"), package.other]
    assert found == ["imported compiler", False, "imported other"]
    assert package.compiler == "imported compiler"


def test_a_module_that_is_imported_stays_where_it_is(
    package: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "package.compiler", types.ModuleType("package.compiler"))
    with leave_out_import(package, "compiler"):
        assert package.compiler == "imported compiler"


def test_a_patch_of_others_meanwhile_stays(package: types.ModuleType) -> None:
    with leave_out_import(package, "compiler"):
        package.__dict__["__getattr__"] = str.upper
    assert package.compiler == "COMPILER"
