"""The browser's modules keep to the types that their comments declare."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHECKS = Path(__file__).parents[1] / "js"
COMPILER = CHECKS / "node_modules/typescript/bin/tsc"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None or not COMPILER.is_file(), reason="no TypeScript: npm ci --prefix tests/js")
def test_every_module_keeps_to_its_declared_types() -> None:
    command = [NODE or "node", str(COMPILER), "--project", str(CHECKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:]
