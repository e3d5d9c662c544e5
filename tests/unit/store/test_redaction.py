"""Names of the user's are exchanged where they are read; those that everybody has stay, and so do all figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.format.run import open_run
from collector.format.schema.columns import OPERATOR, Shown
from collector.format.schema.errors import TableBrokenError
from collector.format.schema.manifest import Warn
from collector.format.schema.tables import TABLES
from collector.notebook.run import Run
from profiler_server.analysis.ranks.ending import find_end
from profiler_server.analysis.ranks.ends import Raised
from profiler_server.report import build_report
from profiler_server.store.redaction import Redactor, redact
from profiler_server.store.sql import connect
from tests.support.canary import CANARY, find_canaries, plant
from tests.support.live import edit_rank
from tests.support.must import must
from tests.support.panorama import build_rich
from tests.support.row_edits import name_transforms, write_rows
from tests.support.runs import RunPlan, build_run, build_stages, build_steps
from tests.support.tables import kernel, operator

KERNEL = Shown("kernel", names="kernels")


@pytest.mark.parametrize(
    "name",
    [
        *("aten::mm", "torch.save", "autograd::engine::evaluate_function: AddmmBackward0", "Optimizer.step#SGD.step"),
        *(
            "void at::native::vectorized_elementwise_kernel<4>",
            "ampere_sgemm_128x64_tn",
            "AddmmBackward0",
            "MmBackward",
        ),
        *("Memcpy HtoD (Pinned -> Device)", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
        *(
            "torch::autograd::AccumulateGrad",
            "c10d::allreduce_",
            "nccl:all_reduce",
            "ProfilerStep#12",
            "cudaLaunchKernel",
        ),
        *("nn.Module: Linear_3", "triton_poi_fused_add_relu_0", "(no operator: launched outside of all)"),
    ],
)
def test_names_that_everybody_has_stay(name: str) -> None:
    assert Redactor().show(name, OPERATOR) == name


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>, false, true>(pytorch_flash::Flash_fwd_params)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>(c10::BFloat16*, int)",
    ],
)
def test_kernels_of_libraries_keep_their_names(name: str) -> None:
    assert Redactor().show(name, KERNEL) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "autograd::engine::evaluate_function: AcmeSecretLossBackward",
            "autograd::engine::evaluate_function: function1Backward",
        ),
        ("AcmeSecretLossBackward", "function1Backward"),
        ("AcmeBackward0", "operator 1"),
        ("Optimizer.step#MyOptimizer.step", "Optimizer.step#optimizer1.step"),
        ("Optimizer.zero_grad#MyOptimizer.zero_grad", "Optimizer.zero_grad#optimizer1.zero_grad"),
        ("enumerate(DataLoader)#_MyLoader.__next__", "enumerate(DataLoader)#iterator1.__next__"),
        ("void at::native::k<acme::Secret>", "void at::native::k<name1::name2>"),
        ("void acme::Secret<float>(float*)", "operator 1"),
        ("triton_secret", "operator 1"),
        ("cuda_loss", "operator 1"),
        ("sm80_secret", "operator 1"),
        ("nccl:secret", "operator 1"),
        ("torch.secret", "operator 1"),
        ("Optimizer.secret", "operator 1"),
        ("aten::secret", "operator 1"),
        ("acme::mm", "operator 1"),
        ("atenish", "operator 1"),
        ("Memcpy of secrets", "operator 1"),
        ("torch/secret.py(3): forward", "operator 1"),
    ],
)
def test_what_begins_like_a_name_of_torchs_is_the_users(name: str, shown: str) -> None:
    assert Redactor().show(name, OPERATOR) == shown


def test_a_range_keeps_its_name_only_if_torch_gave_it() -> None:
    what = must(TABLES["ranges"].column("name").shown)
    kept = ("Optimizer.step#SGD.step", "DistributedDataParallel.forward", "ProfilerStep#3")
    assert [Redactor().show(name, what) for name in kept] == [*kept]
    words = ("aten::mm", "triton_poi_fused_add_0", "loss", "cudaLaunchKernel", "at::native::add<int>")
    assert [Redactor().show(name, what) for name in words] == ["range 1"] * len(words)


def test_a_name_of_the_users_gets_one_other_name() -> None:
    redactor = Redactor()
    assert redactor.show("acme::secret_op", OPERATOR) == "operator 1"
    assert redactor.show("atenish", OPERATOR) == "operator 2"
    assert redactor.show("acme::secret_op", OPERATOR) == "operator 1"
    assert redactor.show("void acme::secret_op<float>(int)", KERNEL) == "void name1::name2<float>(int)"
    assert redactor.show("acme", Shown("range")) == "name 1"
    assert redactor.show("fit/acme", Shown("range", separator="/")) == "range 1/name 1"
    assert redactor.show(None, OPERATOR) is None
    assert redactor.show("/home/me/train.py:3", Shown()) is None


def test_of_what_a_trace_tells_of_a_slice_the_known_figures_stay() -> None:
    shown = must(TABLES["slices"].column("args").shown)
    told = '{"blocks per SM":2.5,"acme":1,"Input Dims":[[2,3]],"Input type":["float","Acme"],"kernel_file":"/home/me"}'
    kept = '{"blocks per SM":2.5,"Input Dims":[[2,3]],"Input type":["float",""]}'
    assert Redactor().show(told, shown) == kept
    assert [Redactor().show(text, shown) for text in ("[1]", "acme", '"acme"', "{", None)] == [None] * 5


def test_tables_and_manifests_hold_no_name(tmp_path: Path) -> None:
    path = build_run(tmp_path / "secret-run")
    plan = RunPlan()
    stages = build_stages(build_steps(plan), plan)
    name_transforms(stages)
    write_rows(path / "profiler/rank_0", "stages", stages)
    moment = {"step": 1, "groups": [{"name": "1", "label": "secret-mesh", "ended": 4}]}
    edit_rank(path, host="secret-host", warnings=(Warn("odd", "/home/me is full"),), facts={"moment": moment})
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


@pytest.mark.parametrize("name", ["ValueError", "Zqxjkv"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_an_end_is_that_of_the_whole_run(tmp_path: Path, ranks: int, name: str) -> None:
    """torchrun ends by SIGTERM what is left of a job of which one rank raised."""
    path = build_run(tmp_path / "run", RunPlan(ranks=ranks, operators=False))
    edit_rank(path, 0, facts={"ended_by": f"{name}: {CANARY}: 7"})
    for rank in range(1, ranks):
        edit_rank(path, rank, state="crashed", ended_unix_ns=1, facts={"process_end": {"signal": 15}})
    whole, shown = find_end(open_run(path)), find_end(redact(open_run(path)))
    assert isinstance(whole, Raised)
    assert whole.ranks == ((0,) if ranks > 1 else ())
    assert shown == replace(whole, error="ValueError: message 1" if name == "ValueError" else "error 1")
    assert find_canaries(str(build_report(redact(open_run(path)))["end"])) == []


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "run"
    build_rich(path)
    plant(path)
    return path


@pytest.mark.parametrize("name", TABLES)
def test_no_table_shows_a_word_that_nobody_has(planted: Path, name: str) -> None:
    plain, shown = open_run(planted).rank().table(name), redact(open_run(planted)).rank().table(name)
    columns = [column.name for column in TABLES[name].columns if column.dtype in ("string", "category")]
    assert all(CANARY in str(plain[column].to_pylist()) for column in columns)
    assert find_canaries(str(shown.to_pydict())) == []
    assert shown.drop_columns(columns) == plain.drop_columns(columns)
    assert shown.schema == plain.schema


def test_no_manifest_shows_a_word_that_nobody_has(planted: Path) -> None:
    plain, shown = open_run(planted), redact(open_run(planted))
    assert str(plain.manifest).count(CANARY) > 10
    assert str(plain.rank().manifest).count(CANARY) > 100
    assert find_canaries(f"{shown.manifest}{shown.rank().manifest}") == []


def test_columns_by_themselves_are_redacted_alike(planted: Path) -> None:
    run = redact(open_run(planted))
    assert run.rank().table("operators", ("name",))["name"].combine_chunks() == _names(run.rank().table("operators"))
    assert _names(run.rank().table("operators")).type == pa.dictionary(pa.int32(), pa.string())


def _names(table: pa.Table) -> Any:
    return table["name"].combine_chunks()


def test_a_name_is_the_same_in_all_tables(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    write_rows(path / "profiler/rank_0", "operators", [operator("acme::secret_op")])
    write_rows(path / "profiler/rank_0", "kernels", [kernel("acme_kernel", operator="acme::secret_op")])
    rank = redact(open_run(path)).rank()
    assert (
        rank.table("kernels")["operator"].to_pylist() == rank.table("operators")["name"].to_pylist() == ["operator 1"]
    )


def test_damage_is_reported_without_what_is_damaged(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run")
    file = path / "profiler/rank_0/rank.json"
    file.write_text(file.read_text("utf-8").replace('"state": "complete"', '"state": "secret"'), "utf-8")
    with pytest.raises(TableBrokenError, match="secret"):
        _ = open_run(path).rank().manifest
    with pytest.raises(TableBrokenError, match="is damaged; it cannot be made again") as found:
        _ = redact(open_run(path)).rank().manifest
    assert "secret" not in str(found.value)


def test_spans_traces_and_queries_hold_no_name(planted: Path, tmp_path: Path) -> None:
    run = Run(planted, Redactor())
    run.write_trace(tmp_path / "trace.json")
    asked = connect(run).execute("SELECT DISTINCT detail FROM stages").fetchall()
    for text in (run.spans().to_csv(), (tmp_path / "trace.json").read_text(encoding="utf-8"), str(asked)):
        assert find_canaries(text) == []
    assert "transform 1" in str(asked)
