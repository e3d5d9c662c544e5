"""The Memory and resources page: who used processors, memory, disk and GPU while steps ran, and what took device memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from collector.run import RankRun
from collector.schema.errors import RunError
from profiler_server.analysis.resources import Resources, StepScale, parse_steps, read_resources, read_scale
from profiler_server.page import Notice, Page, PageRequest, explain_absence, find_remedy
from profiler_server.pages.memory.gpu import GpuView, view_gpus
from profiler_server.pages.memory.host import HostView, view_host
from profiler_server.pages.memory.tensors import TensorView, view_tensors

log = logging.getLogger(__name__)

RESOURCES_REMEDY = 'Profiler("runs/my-run", resources=True)'
MEMORY_REMEDY = 'Profiler("runs/my-run", memory=True, window=(10, 3))  # three steps in detail, from step 10'


@dataclass(frozen=True)
class Range:
    """The chosen range of steps as text, empty for all of them; `error` says what was wrong with the one asked for."""

    text: str
    first: int | None
    last: int | None
    error: str


@dataclass(frozen=True)
class MemoryPage:
    """Each part is there, or a notice says why it is not."""

    steps: Range
    host: HostView | None
    host_notice: Notice | None
    gpu: GpuView | None
    gpu_notice: Notice | None
    tensors: TensorView | None
    tensor_notice: Notice | None


def build(request: PageRequest) -> MemoryPage:
    """Build the page. `?steps=10-40` narrows the samples, `?device=` picks one, `?at_ns=` a moment of its memory."""
    rank = request.rank_run
    scale = _read_scale(rank)
    steps, chosen = choose_range(scale, request.query.get("steps", ""))
    host, gpu, absence = None, None, None
    try:
        absence = explain_absence(rank, "resources", "Resources were not sampled", RESOURCES_REMEDY)
        if absence and absence.state == "off" and rank.state == "imported":
            absence = replace(absence, reason="An imported trace holds no samples of the machine; a recorded run does.")
        if absence is None:
            resources = read_resources(rank, scale, chosen)
            absence = _explain_empty(resources)
            host, gpu = view_host(rank.manifest, resources), view_gpus(rank.manifest, resources)
    except RunError as error:
        absence = _fail("The samples cannot be read", error)
    tensors, tensor_notice = _build_tensors(rank, request)
    return MemoryPage(
        steps=steps,
        host=host if absence is None else None,
        host_notice=absence,
        gpu=gpu,
        gpu_notice=None if gpu or absence else explain_no_gpu(rank),
        tensors=tensors,
        tensor_notice=tensor_notice,
    )


def _read_scale(rank: RankRun) -> StepScale:
    try:
        return read_scale(rank)
    except RunError as error:
        log.warning("the steps of rank %d cannot be read: %s", rank.rank, error)
        return StepScale.empty()


def choose_range(scale: StepScale, text: str) -> tuple[Range, tuple[int, int] | None]:
    """Read the range that is asked for; one that is none, or holds no recorded step, is told and all steps are shown."""
    if not len(scale.number):
        return Range("", None, None, ""), None
    first, last = int(scale.number[0]), int(scale.number[-1])
    if not text:
        return Range("", first, last, ""), None
    chosen = parse_steps(text)
    if chosen is None:
        error = f"“{text[:40]}” is no range of steps such as 10-40. All steps are shown."
        return Range("", first, last, error), None
    if chosen[1] < first or chosen[0] > last:
        error = f"No step of {text[:40]} was recorded; this run has steps {first:,} to {last:,}. All steps are shown."
        return Range("", first, last, error), None
    return Range(f"{chosen[0]}-{chosen[1]}", first, last, ""), chosen


def _explain_empty(resources: Resources) -> Notice | None:
    if resources.series:
        return None
    reason = (
        "The sampler looks every half second, and no look fell into these steps. Choose a wider range."
        if resources.samples > resources.outside
        else "The sampler looks every half second, and the training steps were over before its first look."
    )
    return Notice("empty", "No sample in these steps", reason)


def explain_no_gpu(rank: RankRun) -> Notice:
    """Say why there are no figures of a GPU: there is none, or it could not be asked."""
    signal = next((entry for entry in rank.manifest.signals if entry.name == "gpu"), None)
    if signal is not None:
        return Notice("off", "The GPU was not sampled", signal.reason, "pip install nvidia-ml-py")
    if rank.manifest.devices:
        reason = (
            "This run saw a GPU, and no figure of it was sampled: it was too short, or recorded by an older Stepscope."
        )
        return Notice("empty", "The GPU was not sampled", reason)
    return Notice("empty", "No GPU", "PyTorch saw no CUDA device in this run: it trained on the processor.")


def _build_tensors(rank: RankRun, request: PageRequest) -> tuple[TensorView | None, Notice | None]:
    try:
        absence = explain_absence(rank, "memory", "Allocations were not recorded", MEMORY_REMEDY)
        if absence:
            return None, absence
        return view_tensors(rank, request.query), None
    except RunError as error:
        return None, _fail("The allocations cannot be read", error)


def _fail(title: str, error: RunError) -> Notice:
    log.warning("%s: %s", title, error)
    return Notice("failed", title, str(error), find_remedy(error))


PAGE = Page(slug="memory", title="Memory and resources", order=50, key="m", template="memory.html", build=build)
