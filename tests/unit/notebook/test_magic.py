"""`%%stepscope` in a real kernel, with the cells of the document."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from collector import open_run
from stepscope import notebook
from tests.support.examples import ROOT, list_examples

LOAD, RECORD, LOOK = (one.text for one in list_examples(ROOT / "docs/how-to/notebook.md"))
PREPARE = """
from tests.support import shapes
model, loader, loss_of = shapes.Net(), shapes.loader(480), shapes.loss_of
optimizer = shapes.sgd(model)
"""


def execute(folder: Path, *cells: str) -> Any:
    """Run cells in a kernel of their own, and return the notebook with their outputs."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in (LOAD, PREPARE, *cells)]
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(book, timeout=300, allow_errors=True, kernel_name="python3", resources=resources)
    client.execute()
    return book.cells[2:]


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def list_shown(cell: Any, kind: str) -> list[str]:
    return [output.data[kind] for output in cell.outputs if kind in output.get("data", {})]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cell_is_recorded_and_shown_with_its_advice_and_a_picture(tmp_path: Path) -> None:
    recorded, looked = execute(tmp_path, RECORD + "'the value'", LOOK)
    run = open_run(tmp_path / "runs/cell")
    assert run.rank().count_steps() == 30
    value, shown, advice = list_shown(recorded, "text/plain")
    assert value == "'the value'"
    assert "30 steps" in shown
    html = list_shown(recorded, "text/html")
    assert html == [run._repr_html_(), run.suggestions()._repr_html_()]
    assert advice == str(run.suggestions())
    (picture,) = list_shown(looked, "image/png")
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert "text/html" not in looked.outputs[0].data
    assert "application/vnd.plotly.v1+json" in looked.outputs[0].data


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_an_error_is_that_of_the_cell_and_the_steps_before_it_stay(tmp_path: Path) -> None:
    failed, idle, held, refused, ended = execute(
        tmp_path,
        RECORD + 'import asyncio\nawait asyncio.sleep(0)\nraise ValueError("boom")',
        "%%stepscope runs/idle\n1 + 1",
        "import stepscope\nheld = stepscope.Profiler('runs/<held>', window=None)\nheld",
        RECORD,
        "held.analyse()\nheld",
    )
    (error,) = [output for output in failed.outputs if output.output_type == "error"]
    assert (error.ename, error.evalue) == ("ValueError", "boom")
    trace = "\n".join(error.traceback)
    assert "stepscope" not in trace
    assert "line 8" in trace  # the magic is the first line
    run = open_run(tmp_path / "runs/cell")
    assert (run.rank().count_steps(), run.rank().manifest.facts["ended_by"]) == (30, "ValueError: boom")
    said = "".join(output.text for output in idle.outputs if output.output_type == "stream")
    assert said.count("No training step was found") == 1
    assert list_shown(idle, "text/html") == []
    assert list_shown(held, "text/html") == ["<code>Profiler(&#x27;runs/&lt;held&gt;&#x27;, recording, 0 steps)</code>"]
    (line,) = refused.outputs
    assert line.text.startswith("UsageError: a Profiler is already recording to runs/<held>; end it with ")
    assert "<td>complete</td>" in list_shown(ended, "text/html")[0]


def test_only_a_cell_that_begins_with_the_magic_is_changed() -> None:
    cell = ["x = 1\n", "%%stepscope runs/a\n"]
    assert notebook.replace_magic(cell) == cell
    assert notebook.replace_magic([]) == []
    assert notebook.replace_magic(["%%stepscopes\n"]) == ["%%stepscopes\n"]
    begun, after = notebook.replace_magic(['%%stepscope  it\'s "a" run\n', "x = 1\n"])
    assert after == "x = 1\n"
    assert begun.endswith(".begin('it\\'s \"a\" run')\n")
