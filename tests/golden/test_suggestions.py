"""What is said of real traces. Each suggestion here was judged as the owner of the trace would: is it true, would it help?"""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.traces import import_trace
from profiler_server.diagnosis.judging import diagnose
from tests.support.traces import find_sample, list_samples

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
"""Those of the traces without an entry get none."""


@pytest.mark.parametrize("file", list_samples())
def test_real_traces_get_the_suggestions_that_their_owners_could_use(tmp_path: Path, file: str) -> None:
    run = import_trace(find_sample(file), tmp_path / "run")
    diagnosis = diagnose(run, run.ranks[0])
    assert {entry.rule for entry in diagnosis.suggestions} == SUGGESTIONS.get(file.removesuffix(".json.gz"), set())
    assert diagnosis.warnings == ()
