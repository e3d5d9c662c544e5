"""Run a script as a user would, in a process of its own."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from tests.support import forking


def run_script(folder: Path, text: str, expected: int = 0) -> str:
    """Run a script in a folder and return what it printed; it must end with the expected exit code."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    done = forking.run([sys.executable, script], cwd=folder)
    assert done.returncode == expected, done.stderr
    return str(done.stdout)
