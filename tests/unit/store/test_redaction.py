"""Names of the user's are exchanged where they are read; those that everybody has stay, and so do all figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema.manifest import Warn
from profiler_server.store.redaction import Redactor, redact
from profiler_server.store.sql import connect
from tests.support.row_edits import name_transforms, write_rows
from tests.support.runs import RunPlan, build_run, build_stages, build_steps
from tests.support.tables import edit_manifest


@pytest.mark.parametrize(
    "name",
    [
        *("aten::mm", "torch.save", "autograd::engine::evaluate_function: AddmmBackward0", "Optimizer.step#SGD.step"),
        *("void at::native::vectorized_elementwise_kernel<4>", "ampere_sgemm_128x64_tn", "AddmmBackward0"),
        *("Memcpy HtoD (Pinned -> Device)", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
    ],
)
def test_names_that_everybody_has_stay(name: str) -> None:
    assert Redactor().rename(name, "operator") == name


def test_a_name_of_the_users_gets_one_other_name() -> None:
    redactor = Redactor()
    assert redactor.rename("acme::secret_op", "operator") == "operator 1"
    assert redactor.rename("atenish", "operator") == "operator 2"
    assert redactor.rename("acme::secret_op", "operator") == "operator 1"
    assert redactor.rename(None, "operator") is None
    assert redactor.rename("/home/me/train.py:3", "") is None


def test_tables_and_manifests_hold_no_name(tmp_path: Path) -> None:
    path = build_run(tmp_path / "secret-run")
    plan = RunPlan()
    stages = build_stages(build_steps(plan), plan)
    name_transforms(stages)
    write_rows(path / "profiler/rank_0", "stages", stages)
    moment = {"step": 1, "groups": [{"name": "1", "label": "secret-mesh", "ended": 4}]}
    edit_manifest(path, host="secret-host", warnings=(Warn("odd", "/home/me is full"),), facts={"moment": moment})
    plain, redacted = open_run(path), redact(open_run(path))
    rank = redacted.rank(0)
    said = f"{redacted.manifest} {rank.manifest}"
    for secret in ("secret", "train.py", "DigitFiles", "SmallCnn", "/home/me"):
        assert secret not in said.replace(str(tmp_path), "")
    assert rank.manifest.facts["moment"]["groups"] == [{"name": "1", "label": "", "ended": 4}]
    details = {name for name in rank.table("stages")["detail"].to_pylist() if name}
    assert details
    assert all(name.startswith("transform ") for name in details)
    assert rank.table("stages").schema == plain.rank(0).table("stages").schema
    assert rank.table("stages", ("duration_ns",)) == plain.rank(0).table("stages", ("duration_ns",))


def test_spans_traces_and_queries_hold_no_name(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    plan = RunPlan()
    stages = build_stages(build_steps(plan), plan)
    name_transforms(stages)
    write_rows(path / "profiler/rank_0", "stages", stages)
    secrets = sorted({row["detail"] for row in stages if row.get("detail")})
    assert secrets
    run = redact(open_run(path))
    run.write_trace(tmp_path / "trace.json")
    asked = connect(run).execute("SELECT DISTINCT detail FROM stages").fetchall()
    said = run.spans().to_csv() + (tmp_path / "trace.json").read_text(encoding="utf-8") + str(asked)
    assert [name for name in secrets if name in said] == []
    assert "transform 1" in said
