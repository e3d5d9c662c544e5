"""The tutorial's program after each of its steps: its diffs are read from the page and applied to the first version.

`python -m tests.support.tutorial FOLDER` records all versions in FOLDER, and writes what was said, processor times and
pictures into the page. It takes two minutes, best on a machine that does nothing else. RuntimeError if the last version
is not four times as fast as the first one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL import Image

import collector
from profiler_server.format import format_duration

ROOT = Path(__file__).parents[2]
PAGE, PROGRAM = ROOT / "docs/tutorial/faster.md", ROOT / "examples/tutorial/train.py"
PICTURES = (("", 0), ("steps", 1), ("data", 2), ("steps", 3), ("operators", 4))
"""The page, and the version, of each picture."""


def list_versions() -> list[str]:
    """Return the program as it is, and after each section of the tutorial. ValueError if a diff does not fit once."""
    versions = [PROGRAM.read_text("utf-8")]
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        diffs = re.findall(r"```diff\n(.*?)```", section, re.DOTALL)
        text = versions[-1]
        for diff in diffs:
            before, after = (_take(diff, sign) for sign in "-+")
            if text.count(before) != 1:
                raise ValueError(f"this does not stand once in the program:\n{before}")
            text = text.replace(before, after)
        versions += [text] if diffs else []
    return versions


def _take(diff: str, sign: str) -> str:
    """Return the lines of one side of a diff."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (sign, " "))


def _start(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, **options)


def record(text: str, folder: Path, steps: int, start: Callable[..., Any] = _start) -> Path:
    """Run a version of the program in a folder; return its run."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)), "PROFILER_VERDICT": "0"}
    done = start([sys.executable, "train.py", ".", str(steps)], cwd=folder, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return folder / "run"


def take_pictures(base: Path) -> None:
    """Take the picture of each section of the runs below base."""
    from playwright.sync_api import sync_playwright

    from tests.support.serving import serve

    with serve(base) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1120, "height": 660}, color_scheme="light")
        for number, (slug, at) in enumerate(PICTURES, 1):
            page.goto(f"{address}/runs/version-{at}%2Frun/{slug}", wait_until="networkidle")
            picture = ROOT / f"docs/images/tutorial-{number}.png"
            page.screenshot(path=picture)
            Image.open(picture).convert("RGB").quantize(64).save(picture, optimize=True)
        browser.close()


def say_brief(run: Path) -> str:
    """Return what `report --brief` says of a run, in lines as long as those of the page."""
    command = [sys.executable, "-m", "profiler_server", "report", "--brief", str(run)]
    said = subprocess.run(command, cwd=run.parent, capture_output=True, text=True, check=True).stdout
    return "\n".join(textwrap.fill(line, 118, break_long_words=False) for line in said.splitlines()) + "\n"


def measure_work(folder: Path, steps: int) -> tuple[float, float]:
    """Run the program of a folder without recording. Return the processor time of a step in ns: the median of the
    training thread's, and the workers' share of theirs."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(steps)], cwd=folder, capture_output=True, text=True, check=True
    )
    thread_ns, workers_ns = done.stdout.split()[-2:]
    return float(thread_ns), float(workers_ns)


_MEASURE = """
import resource, runpy, statistics, sys, time
from types import SimpleNamespace

import stepscope, torch

marks, step = [], torch.optim.Adam.step
torch.optim.Adam.step = lambda *words: (marks.append(time.thread_time_ns()), step(*words))
stepscope.Profiler = lambda path: SimpleNamespace(analyse=lambda: None)
sys.argv = ["train.py", ".", sys.argv[1]]
runpy.run_path("train.py", run_name="__main__")
used = resource.getrusage(resource.RUSAGE_CHILDREN)
between = statistics.median(after - before for before, after in zip(marks, marks[1:]))
print(between, 1e9 * (used.ru_utime + used.ru_stime) / len(marks))
"""


def write_page(text: str, said: Sequence[str], figures: Mapping[str, Sequence[float]], measured: str) -> str:
    """Return the page with what was said in the first text block of each section, and the figures."""
    head, *sections = text.split("\n## ")
    for number, brief in enumerate(said):
        begin, _, rest = sections[number].partition("```text\n")
        sections[number] = f"{begin}```text\n{brief}```{rest.partition('```')[2]}"
    page = "\n## ".join([head, *sections])
    for row, values in figures.items():
        cells = " | ".join(format_duration(value) for value in values)
        page = re.sub(rf"^\| {row} \|.*$", f"| {row} | {cells} |", page, flags=re.MULTILINE)
    return re.sub(r"^Measured on .*?\n\n", f"{textwrap.fill(measured, 120)}\n\n", page, flags=re.M | re.S)


def measure_median(run: Path) -> float:
    """Return the median step of a run outside of windows, in ns."""
    steps = collector.open_run(run).frame("steps")
    return float(steps[(steps.kind == "train") & ~steps.detailed].duration_ns.median())


def main(base: Path, steps: int = 100) -> None:
    runs = [record(text, base / f"version-{number}", steps) for number, text in enumerate(list_versions())]
    medians = [measure_median(run) for run in runs]
    if medians[0] < 4 * medians[-1]:
        raise RuntimeError(f"the page says four times faster; the medians are {medians} ns")
    work = [measure_work(run.parent, steps) for run in runs]
    figures = {"training thread": [one for one, _ in work], "workers": [one for _, one in work], "median step": medians}
    measured = (
        f"Measured on {date.today():%-d %B %Y} on {os.cpu_count()} virtual cores with PyTorch {version('torch')}, once: the "
        f"median of the recorded steps is {medians[0] / medians[-1]:.1f} times shorter. Processor times are those of {steps} "
        f"steps without recording. The load of the machine was {os.getloadavg()[2]:.0f} meanwhile; on an idle one all "
        "steps are shorter."
    )
    said = [say_brief(run) for run in runs]
    PAGE.write_text(write_page(PAGE.read_text("utf-8"), said, figures, measured), encoding="utf-8")
    take_pictures(base)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:]))
