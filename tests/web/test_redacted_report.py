"""The redacted report: no text of the user's, whatever it looks like, and every figure of the other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.traces.importing import import_trace
from profiler_server.report import build_report
from profiler_server.store.redaction import redact
from profiler_server.web.report_file import render_report
from tests.support.canary import CANARY, find_canaries, plant
from tests.support.panorama import PANORAMA, build_rich
from tests.support.tables import kernel, operator, write_rows
from tests.support.traces import training_steps, write_trace
from tests.web.test_command_line import run

NAMES = (
    *("AcmeSecretLoss", "AcmeSecretLossBackward", "autograd::engine::evaluate_function: AcmeSecretLossBackward"),
    *("AcmeBackward0", "Optimizer.step#AcmeOptimizer.step", "Optimizer.zero_grad#AcmeOptimizer.zero_grad"),
    *("torch.acme", "Optimizer.acme", "aten::acme", "nccl:acme", "enumerate(DataLoader)#_AcmeLoader.__next__"),
)
KERNELS = ("void at::native::k<acme::Secret>(int)", "triton_acme", "sm80_acme", "acme_kernel", "void acme::f<int>(int)")


@pytest.fixture(scope="module", params=["rich", "ranks", "imported"])
def planted(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A run whose folder has the canary in its name, too, with a table that cannot be read."""
    path = tmp_path_factory.mktemp("runs") / CANARY
    PANORAMA[request.param](path)
    plant(path)
    (path / "profiler/rank_0/ranges.parquet").write_bytes(b"no table")
    return path


def test_no_face_shows_a_word_that_nobody_has(planted: Path, tmp_path: Path) -> None:
    assert find_canaries(render_report(open_run(planted)))
    done = run("report", planted, "--html", tmp_path / "report.html", "--redact")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "names redacted" in text
    assert find_canaries(text) == []


def test_only_the_report_takes_redact() -> None:
    """Whoever adds a face with `--redact` searches it for canaries: that of assistants in tests/unit/assistant."""
    commands = Path(__file__).parents[2] / "profiler_server"
    found = sorted(p.name for p in commands.rglob("*.py") if '"--redact"' in p.read_text("utf-8"))
    assert found == ["assistant.py", "report.py"]


def test_figures_and_structure_are_those_of_the_whole_report(planted: Path) -> None:
    whole, shown = build_report(open_run(planted)), build_report(redact(open_run(planted)))
    assert find_canaries(str(whole))
    assert find_canaries(str(shown).replace(str(planted), "")) == []
    assert all(rank.pop("stacks") for rank in whole["ranks"])
    assert not any(rank.pop("stacks") for rank in shown["ranks"])
    assert [_outline(rank) for rank in shown["ranks"]] == [_outline(rank) for rank in whole["ranks"]]
    assert sum(len(rank["operators"]) for rank in shown["ranks"]) > 10


def test_names_that_look_like_torchs_are_exchanged_and_keep_their_figures(tmp_path: Path) -> None:
    build_rich(tmp_path / "run")
    write_rows(
        tmp_path / "run", "operators", [operator(name, self_ns=7 * at) for at, name in enumerate(("aten::mm", *NAMES))]
    )
    write_rows(tmp_path / "run", "kernels", [kernel(name, total_ns=5 + at) for at, name in enumerate(KERNELS)])
    opened = open_run(tmp_path / "run")
    assert "AcmeSecretLossBackward" in render_report(opened)
    text = render_report(opened, redact=True)
    assert [word for word in ("acme", "secret") if word in text.lower()] == []
    assert "aten::mm" in text
    assert "Optimizer.step#optimizer1.step" in text
    whole, shown = build_report(opened)["ranks"][0], build_report(redact(opened))["ranks"][0]
    assert {row["name"]: row["self_ns"] for row in shown["operators"]}["aten::mm"] == 0
    assert [row["self_ns"] for row in shown["operators"]] == [row["self_ns"] for row in whole["operators"]]
    assert [row["total_ns"] for row in shown["kernels"]] == [row["total_ns"] for row in whole["kernels"]]


def test_a_trace_of_a_known_model_reads_as_before(tmp_path: Path) -> None:
    shape = {"blocks per SM": 2.0, "est. achieved occupancy %": 50}
    events = [
        {**event, "args": {**event["args"], **shape}} if event["cat"] == "kernel" else event
        for event in training_steps()
    ]
    opened = import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run")
    whole, shown = build_report(opened)["ranks"][0], build_report(redact(opened))["ranks"][0]
    assert [row["name"] for row in shown["operators"]] == [row["name"] for row in whole["operators"]]
    assert [row["name"] for row in shown["kernels"]] == [row["name"] for row in whole["kernels"]]
    assert shown["device"]["occupancy_frac"] is not None
    assert _outline(shown) == _outline(whole)


def _outline(value: Any) -> Any:
    """Return a part of a report without its texts; what is listed by name is in another order with other names."""
    if isinstance(value, dict):
        return {key: _outline(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return sorted((_outline(entry) for entry in value), key=str)
    return "" if isinstance(value, str) else value
