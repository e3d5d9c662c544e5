"""The examples of every document run: each page in a folder of its own, with a small training and some runs at hand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import ROOT, RUN_LANGUAGES, list_examples, run_page
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run, slow_loader_plan

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OWN_TESTS = {
    "ray": "tests/unit/stepscope/test_ray.py",
    "trackers": "tests/unit/trackers",
    "faster": "tests/unit/documents/test_tutorial.py",
    "flame-graphs": "tests/web/test_door_documents.py",
    "one-file": "tests/web/test_door_documents.py",
    "out-of-memory": "tests/unit/launch/test_memory_document.py",
}
"""Pages whose examples other tests run, with the place of these."""
SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(240, 8), torch.randint(0, 2, (240,))), batch_size=8)
    for values, kinds in loader:
        loss = torch.nn.functional.cross_entropy(model(values), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
PRELUDE = """
import queue
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader, TensorDataset

import stepscope

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
mlflow = SimpleNamespace(log_metrics=dict)
reader = SimpleNamespace(read=lambda: next(iter(loader)))
decode = augment = lambda value: value
images, i, paths = queue.Queue(), 0, queue.Queue()
run = stepscope.open_run("digits", base_dir="runs")
paths.put(None)


def read_batches():
    yield from loader


def train(*batch):
    values, kinds = batch if len(batch) == 2 else batch[0]
    loss = torch.nn.functional.cross_entropy(model(values), kinds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class Trained(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch
            train(*batch)  # the loops of the documents have no body


data = TensorDataset(torch.randn(240, 8), torch.randint(0, 2, (240,)))
loader = Trained(data, batch_size=8, num_workers=2)
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script and the runs that the pages name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "train.py").write_text(SCRIPT)
    for name in ("before", "after", "my-first-run"):
        build_run(folder / "runs" / name)
    build_run(folder / "runs/digits", slow_loader_plan("transform"))
    for number in range(5):
        for side in ("base", "new"):
            build_run(
                folder / "runs" / side / str(number),
                RunPlan(phases_ms={**HEALTHY_STEP_MS, "forward": 20.0 + (number * 7 + len(side)) % 5 / 10}),
            )
    return folder


def _serve_for_a_moment(text: str) -> str:
    return re.sub(r"stepscope serve (\S+)", r"{ timeout -s INT 6 stepscope serve \1 --port 0 || true; }", text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_examples_of_a_page_run(page: Path, kept: Path, tmp_path: Path) -> None:
    if page.stem in OWN_TESTS or not any(
        one.language in RUN_LANGUAGES and not one.needs for one in list_examples(page)
    ):
        return
    folder = tmp_path / "work"
    shutil.copytree(kept, folder)
    assert run_page(page, folder, PRELUDE, _serve_for_a_moment) == ""


@pytest.mark.parametrize(
    ("command", "said"), [("stepscope", "stepscope "), ("profiler-server", "stepscope "), ("profiler-run", "")]
)
def test_the_commands_are_installed(command: str, said: str) -> None:
    words = [Path(sys.executable).with_name(command), "--version" if said else "--help"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith(said)


def test_tests_of_their_own_are_there() -> None:
    assert [place for place in OWN_TESTS.values() if not (ROOT / place).exists()] == []
