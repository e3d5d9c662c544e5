"""What the pages of an imported trace advise: what helps its profiler, not what helps a run that Stepscope records."""

from __future__ import annotations

import html
import re

import pytest

from collector.traces import import_trace
from tests.support.asking import Asker
from tests.support.traces import kernel, operator, step, training_steps, write_trace

FOR_RECORDED = ("window=(10, 3)", "FP_POINT", "analyse()", 'window="auto"')


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("imported")
    traces = {
        "usual": training_steps(),
        "one-step": [operator("aten::mm", 10, 50)],
        "device-only": [step(1, 0, 100), kernel("gemm", 10, 20, 1)],
    }
    for name, events in traces.items():
        import_trace(write_trace(base / f"{name}.json", events), base / name)
    job = base / "job-traces"
    job.mkdir()
    for rank in range(2):
        write_trace(job / f"rank{rank}.json", training_steps(), {"distributedInfo": {"rank": rank, "world_size": 2}})
    import_trace(job, base / "job")
    return Asker(base)


@pytest.mark.parametrize(
    "slug",
    ["", "steps", "operators", "operators?group=roofline", "device", "memory", "ranks", "timeline", "accounting"],
)
@pytest.mark.parametrize("run", ["usual", "one-step", "device-only", "job"])
def test_no_page_tells_to_set_what_only_a_recorded_run_has(asker: Asker, run: str, slug: str) -> None:
    text = html.unescape(asker.ask(f"/runs/{run}/{slug}").text)
    assert [words for words in FOR_RECORDED if words in text] == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("usual/", "call prof.step() after every step"),
        ("device-only/operators", "ProfilerActivity.CPU"),
        ("one-step/operators?group=kernels", "ProfilerActivity.CUDA"),
        ("job/ranks", "not through torch.distributed"),
        ("usual/ranks", "profiler-server import a-folder-of-traces"),
        ("usual/memory", "profile_memory=True"),
        ("one-step/operators?group=roofline", "record_shapes=True"),
    ],
)
def test_what_a_trace_lacks_is_said_with_the_option_of_its_profiler(asker: Asker, address: str, words: str) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", asker.ask(f"/runs/{address}").text))
    assert words in text
