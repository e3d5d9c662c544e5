"""The real libraries, without a network: the document's example, and what each of them then holds."""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import open_run
from tests.support import forking

ROOT = Path(__file__).parents[3]
EXAMPLE = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/trackers.md").read_text("utf-8"), re.DOTALL)[0]
PATIENT = """
import os, time
from collector.session import closing, tracking
from tests.support import shapes
closing.REPORT_S, tracking.PATIENCE_S, tracking.EVERY_S = 200.0, 100.0, 0.05
loader = shapes.loader(480)
def train(batches):
    model = shapes.Net()
    shapes.train_on(model, shapes.sgd(model), batches)
"""
LIVE = "stepscope/live/step_seconds"
BLOCK, HEAD = 32768, 7


def run_example(folder: Path, text: str, *, judges: bool = True, **variables: str) -> str:
    script = folder / "script.py"
    script.write_text(PATIENT + text, "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "PROFILER_VERDICT": str(int(judges)),
        **variables,
    }
    done = forking.run([sys.executable, script.name], cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return str(done.stderr)


def read_records(folder: Path) -> Iterator[Any]:
    """Yield the records of the only offline run of W&B: pieces in blocks, each with checksum, size and kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, whole = path.read_bytes(), HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + HEAD : at + HEAD + size]
        at += HEAD + size
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def read_summary(records: list[Any]) -> set[str]:
    return {item.key or "/".join(item.nested_key) for one in records for item in one.summary.update}


def read_rows(records: list[Any]) -> list[dict[str, str]]:
    return [
        {item.key or "/".join(item.nested_key): item.value_json for item in one.history.item}
        for one in records
        if one.WhichOneof("record_type") == "history"
    ]


def test_wandb_holds_figures_verdict_and_report(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run_example(tmp_path, EXAMPLE, WANDB_MODE="offline", WANDB_SILENT="true")
    records = list(read_records(tmp_path))
    metrics = open_run(tmp_path / "runs/digits").metrics()
    assert {"stepscope/verdict", "stepscope/advice", *metrics} <= read_summary(records)
    (artifact,) = [one.artifact for one in records if one.WhichOneof("record_type") == "artifact"]
    assert (artifact.type, [entry.path for entry in artifact.manifest.contents]) == ("report", ["report.html"])


def test_wandb_keeps_the_users_own_steps(tmp_path: Path) -> None:
    """W&B drops what is logged with a lower step than an earlier row, so none of ours may begin a step."""
    wandb = pytest.importorskip("wandb")
    assert wandb
    text = f"""
    import wandb
    from collector.trackers.wandb import TRACKER
    ours = TRACKER("wandb", None)
    assert not ours.find()
    with wandb.init(project="digits") as run:
        assert ours.find()
        for step in range(20):
            run.log({{"loss": 0.5}}, step=step)
            if step % 5 == 3:
                for later in range(3):
                    ours.log({{"{LIVE}": 0.1 + step}}, 1000 + step + later)
        run.log({{"loss": 0.5}})
    """
    run_example(tmp_path, "if True:" + text, WANDB_MODE="offline", WANDB_SILENT="true")
    rows = read_rows(list(read_records(tmp_path)))
    assert [row["_step"] for row in rows] == [str(step) for step in range(20)]
    assert all(row["loss"] == "0.5" for row in rows)
    assert [row["stepscope/step"] for row in rows if LIVE in row] == ["1005", "1010", "1015", "1020"]


def test_a_script_without_analyse_logs_before_wandb_ends_its_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    text = """
from stepscope import Profiler
profiler = Profiler("runs/digits", window=None, log_to="wandb")
import wandb
wandb.init(project="digits")
train(loader)
"""
    said = run_example(tmp_path, text, judges=False, WANDB_MODE="offline", WANDB_SILENT="true")
    assert "nothing is logged" not in said
    assert "stepscope/step_seconds" in read_summary(list(read_records(tmp_path)))


def test_mlflow_holds_them_in_the_run_that_was_active(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    text = EXAMPLE.replace("wandb.init(project=", "mlflow.start_run(run_name=").replace("wandb", "mlflow")
    more = """
found, = mlflow.search_runs(output_format="list")
files = [each.path for each in mlflow.MlflowClient().list_artifacts(found.info.run_id, "stepscope")]
names = sorted(name for name in found.data.tags if name.startswith("stepscope"))
assert found.data.metrics == profiler._open_run().metrics(), found.data.metrics
assert (names, files) == (["stepscope/advice", "stepscope/verdict"], ["stepscope/report.html"]), (names, files)
"""
    uri = (tmp_path / "mlruns").as_uri()
    run_example(tmp_path, text + more, MLFLOW_TRACKING_URI=uri, MLFLOW_ALLOW_FILE_STORE="true")


@pytest.mark.parametrize("own", [False, True])
def test_tensorboard_reads_them_back(tmp_path: Path, own: bool) -> None:
    pytest.importorskip("tensorboard")
    writer = '__import__("torch.utils.tensorboard").utils.tensorboard.SummaryWriter("logs")'
    text = f"""
from stepscope import Profiler
profiler = Profiler("runs/digits", window=None, log_to={writer if own else '"tensorboard"'})
train(loader)
run = profiler.analyse()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import glob
folder, = glob.glob({'"logs"' if own else '"runs/digits/tensorboard/*"'})
read = EventAccumulator(folder)
read.Reload()
found = {{name: read.Scalars(name)[-1].value for name in read.Tags()["scalars"]}}
for name, value in run.metrics().items():
    assert abs(found[name] - value) <= 1e-6 * value, (name, found)
assert "stepscope/verdict/text_summary" in read.Tags()["tensors"]
"""
    run_example(tmp_path, text)


def test_trackio_keeps_its_own_steps(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    text = """
import trackio
from stepscope import Profiler
run = trackio.init(project="digits", name="one")
for _ in range(3):
    trackio.log({"loss": 0.5})
profiler = Profiler("runs/digits", window=None, log_to="trackio")
train(loader)
metrics = profiler.analyse().metrics()
trackio.log({"loss": 0.5})
trackio.finish()
from trackio.sqlite_storage import SQLiteStorage
assert [row["step"] for row in SQLiteStorage.get_logs("digits", "one")] == [0, 1, 2, 3]
logged = [row for row in SQLiteStorage.get_system_logs("digits", "one") if "stepscope/steps" in row]
assert metrics.items() <= logged[-1].items()
"""
    run_example(tmp_path, text, TRACKIO_DIR=str(tmp_path / "kept"))
    assert list((tmp_path / "kept/artifacts").rglob("*"))
