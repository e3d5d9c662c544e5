"""Build the wheel and the source archive, and use them as users do. `python -m tests.release [--python PATH …]`

For each interpreter: an environment of its own, the wheel, a recorded training (where PyTorch installs), its report, the
server and its pages, all from a folder that holds nothing of the project. Needs `build`, `twine` and `uv` on the path;
prints a line for each trial, and the exit code is the number of failures.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urljoin

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
TRAINING = """
import torch
from stepscope import Profiler
data = torch.utils.data.TensorDataset(torch.randn(480, 16), torch.randn(480, 1))
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
profiler = Profiler("runs/first")
for x, y in torch.utils.data.DataLoader(data, 8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
profiler.analyse()
"""


def main() -> int:
    """Build and try everything; return the number of trials that failed."""
    parser = argparse.ArgumentParser("python -m tests.release", description=__doc__)
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters to try the wheel with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wheel, archive = build(place / "dist")
        trials: list[tuple[str, Callable[[], str]]] = [
            ("metadata", lambda: call(["twine", "check", "--strict", wheel, archive], place).splitlines()[-1])
        ]
        trials += [(f"wheel, {python}", partial(use, wheel, python, place)) for python in given.python]
        trials.append(("source archive", lambda: use(archive, given.python[0], place)))
        trials.append(("uvx", lambda: call(["uvx", "--from", f"{wheel}[server]", "stepscope", "--version"], place)))
        return sum([not try_one(name, trial) for name, trial in trials])


def build(output: Path) -> tuple[Path, Path]:
    """Build both archives; return their paths."""
    call([sys.executable, "-m", "build", "--outdir", output, ROOT], ROOT)
    return next(output.glob("*.whl")), next(output.glob("*.tar.gz"))


def try_one(name: str, trial: Callable[[], str]) -> bool:
    begin = time.monotonic()
    try:
        found = trial()
    except (subprocess.SubprocessError, OSError, AssertionError) as error:
        found = f"FAILED: {error} {getattr(error, 'stderr', '') or ''}"
    print(f"{name}: {found.strip()} ({time.monotonic() - begin:.0f} s)", flush=True)
    return not found.startswith("FAILED")


def use(archive: Path, python: str, place: Path) -> str:
    """Install an archive for an interpreter and use it; return what came of it, in a line."""
    environment = Path(tempfile.mkdtemp(dir=place))
    call(["uv", "venv", "--quiet", "--clear", "--python", python, environment], place)
    commands = environment / "bin"
    install: list[str | Path] = ["uv", "pip", "install", "--quiet", "--python", environment / "bin/python"]
    call([*install, f"{archive}[server]"], place)
    folder = environment / "elsewhere"
    folder.mkdir()
    recorded = "without PyTorch"
    if subprocess.run([*map(str, install), TORCH], cwd=place, capture_output=True).returncode == 0:
        (folder / "train.py").write_text(TRAINING, "utf-8")
        call([commands / "python", "train.py"], folder)
        report = call([commands / "stepscope", "report", "runs/first", "--brief"], folder)
        assert "60 steps" in call([commands / "stepscope", "report", "runs/first"], folder), report
        recorded = "60 steps recorded"
    serve(commands / "stepscope", folder)
    version = call(
        [commands / "python", "-c", "import sys, stepscope; print(sys.version.split()[0], stepscope.__version__)"],
        folder,
    )
    return f"{version.strip()}, {recorded}, served"


def serve(command: Path, folder: Path) -> None:
    """Start the server on a free port, and ask for pages of it."""
    (folder / "runs").mkdir(exist_ok=True)
    words = [str(command), "serve", "runs", "--port", "0"]
    server = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
        page = fetch(address)
        sources = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', page)
        assert sources, page
        assert all(fetch(urljoin(address, source)) for source in sources)
    finally:
        server.terminate()
        server.wait(60)


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def call(words: Sequence[str | Path], folder: Path) -> str:
    """Run a command in a folder without the project on Python's path; return what it prints. CalledProcessError with
    its errors if it fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    program = shutil.which(str(words[0])) or str(words[0])
    done = subprocess.run(
        [program, *map(str, words[1:])], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
