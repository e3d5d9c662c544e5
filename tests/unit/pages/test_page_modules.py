"""The pure functions of the pages' modules, tested by node's own runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NODE = shutil.which("node")
VIEWER = "timeline.test.mjs"
"""Has its own test, beside those of the viewer's server side."""


@pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")
def test_pure_functions_of_the_pages() -> None:
    assert NODE is not None
    files = [str(path) for path in sorted((ROOT / "tests/js").glob("*.test.mjs")) if path.name != VIEWER]
    assert len(files) >= 3
    command = [NODE, "--no-warnings", "--experimental-default-type=module", "--test", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
