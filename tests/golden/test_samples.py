"""All real traces: they account for their time, replay as they were measured, and get the advice that is true of them."""

from __future__ import annotations

import itertools

import pytest

from profiler_server.analysis.accounting.categories import list_categories
from profiler_server.analysis.device.device import read_device_work
from profiler_server.analysis.operators.operator_groups import tabulate_operators, tabulate_types
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.graph import measure_replay
from profiler_server.analysis.replay.window import read_window
from profiler_server.diagnosis.judging import diagnose
from tests.golden.conftest import Samples
from tests.support.traces import list_samples

NAMES = [name.removesuffix(".json.gz") for name in list_samples()]
SUGGESTIONS = {
    "bert_small_h100": {"launch_bound"},
    "cpu_only_rank34.pt.trace": {"exposed_all_reduce"},
    # a V100 that multiplies in 32 bits; its replay is not believed, so the range is the wide one
    "diff_test": {"amp_off"},
    "minitoy_mi250": {"launch_bound"},
    "nccl_collectives": {"launch_bound"},
    # 24 layers of attention with a softmax in 32 bits between its two products, half of the kernels' time
    "owlv2_h100": {"no_workers", "sdpa_unused"},
    # 871 elementwise kernels of norms, rotary embeddings and activations, 42 % of the kernels' time
    "qwen05b_h100": {"unfused_pointwise"},
    "resnet50_v100_workers0.pt.trace": {"no_workers", "optimizer_loop"},
    "simple_add": {"needless_grad"},
    "two_rank_0": {"launch_bound"},
    "two_rank_1": {"launch_bound"},
    "vit_mi300": {"launch_bound"},
}
"""Each was judged as the owner of the trace would: is it true, would it help? Traces without an entry get none."""
NOT_EXPLAINED = {"diff_test", "negative_queue", "vllm_decode_cudagraph"}
"""Their streams wait for events that the trace does not name, or for work from before it (docs/concepts/diagnosis.md)."""
WITHOUT_DEVICE = {"cpu_only_rank34.pt.trace"}


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_makes_a_run_that_accounts_for_every_step(samples: Samples, name: str) -> None:
    rank = samples[name].rank()
    steps = rank.table("steps").to_pylist()
    assert any(row["kind"] == "train" for row in steps)
    for row, following in itertools.pairwise(steps):
        assert row["start_ns"] + row["duration_ns"] == following["start_ns"]
    phases = [name for name in steps[0] if name.endswith("_ns")][2:10]
    assert all(sum(row[name] for name in phases) == row["duration_ns"] for row in steps)
    categories = list_categories(rank)
    assert categories is not None
    lengths = [row["duration_ns"] for row in steps if row["kind"] == "train"]
    assert sum(categories.values()).tolist() == lengths  # type: ignore[union-attr]
    assert rank.manifest.facts["events"]["slices"] == rank.count_rows("slices")
    assert rank.manifest.events_lost == 0


@pytest.mark.parametrize("name", NAMES)
def test_real_traces_get_the_suggestions_that_their_owners_could_use(samples: Samples, name: str) -> None:
    diagnosis = diagnose(samples[name], samples[name].ranks[0])
    assert {entry.rule for entry in diagnosis.suggestions} == SUGGESTIONS.get(name, set())
    assert diagnosis.warnings == ()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_EXPLAINED | WITHOUT_DEVICE])
def test_a_real_trace_replays_within_3_percent_of_its_measured_time(samples: Samples, name: str) -> None:
    window = read_window(samples[name].rank())
    assert window is not None
    graph = build_graph(window)
    assert graph is not None
    assert measure_replay(graph) == pytest.approx(graph.measured_ns, rel=0.03)


@pytest.mark.parametrize("name", ["qwen05b_h100", "deepseek_train", "negative_queue", "bert_small_h100"])
def test_operators_hold_all_the_work_of_the_devices(samples: Samples, name: str) -> None:
    rank = samples[name].rank()
    work = read_device_work(rank)
    assert work is not None
    whole = int((work.end_ns - work.start_ns).sum())
    for tabulate in (tabulate_operators, tabulate_types):
        rows = tabulate(rank, None).rows
        assert sum(rows["device_self_ns"].to_pylist()) == whole
        assert sum(rows["share_frac"].to_pylist()) == pytest.approx(1.0)
