"""The examples of the documents: fenced blocks, and how those of a page are run.

A block with `title="…"` is not run; the title, which readers see, says what it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN_LANGUAGES = ("python", "sh")


@dataclass(frozen=True)
class Example:
    """A fenced block of a document. `line` is where it begins; `needs` is its title, "" for one that is run."""

    page: Path
    line: int
    language: str
    needs: str
    text: str


def list_examples(page: Path) -> list[Example]:
    """Return the fenced blocks of a page in their order."""
    found, begin, head, lines = [], 0, "", list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.startswith("```") and not begin:
            begin, head, lines = number, line[3:], []
        elif line.startswith("```"):
            language, _, rest = head.partition(" ")
            needs = rest.partition('title="')[2].rstrip('"')
            found.append(Example(page, begin, language, needs, "\n".join([*lines, ""])))
            begin = 0
        elif begin:
            lines.append(line)
    return found


def run_page(page: Path, folder: Path, prelude: str, prepare: Callable[[str], str]) -> str:
    """Run the Python of a page as one program behind `prelude`, then its commands as `prepare` gives them, in `folder`;
    return what went wrong."""
    examples = [one for one in list_examples(page) if not one.needs]
    python = [one.text for one in examples if one.language == "python"]
    commands = [["bash", "-ec", prepare(one.text)] for one in examples if one.language == "sh"]
    if python:
        commands.insert(0, [sys.executable, "-c", "\n".join([prelude, *python])])
    problems = [_run(command, folder) for command in commands]
    return "\n".join(problem for problem in problems if problem)


def _run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PROFILER_VERDICT": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return f"{command[-1]}\n{done.stdout[-2000:]}{done.stderr[-3000:]}" if done.returncode else ""
