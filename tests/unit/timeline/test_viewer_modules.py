"""The viewer's pure functions, tested by node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")
def test_pure_functions_of_the_viewer() -> None:
    assert NODE is not None
    command = [NODE, "--no-warnings", "--experimental-default-type=module", "--test", "tests/js/timeline.test.mjs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
