"""The Memory and resources page: use of processors, memory, disk and GPU while steps ran, and of device memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.analysis.memory.resources import Resources, StepScale, read_resources, read_scale
from profiler_server.page import Notice, Page, PageRequest, build_part, explain_absence, find_remedy
from profiler_server.pages.memory.samples import GpuView, HostView, view_gpus, view_host
from profiler_server.pages.memory.tensors import TensorView, view_tensors

log = logging.getLogger(__name__)

RESOURCES_REMEDY = 'Profiler("runs/my-run", resources=True)'
MEMORY_REMEDY = 'Profiler("runs/my-run", memory=True, window=(10, 3))  # three steps in detail, from step 10'


@dataclass(frozen=True)
class MemoryPage:
    """Each section, or a notice on why the section is absent."""

    host: HostView | None
    host_notice: Notice | None
    gpu: GpuView | None
    gpu_notice: Notice | None
    tensors: TensorView | None
    tensor_notice: Notice | None


def build(request: PageRequest) -> MemoryPage:
    """Build the page. The step filter narrows the samples, `?device=` selects a device, `?at_ns=` a moment of its
    memory."""
    rank = request.rank_run
    scale = _read_scale(rank)
    chosen = (request.steps.first, request.steps.last) if request.steps else None
    host, gpu, absence = None, None, None
    try:
        absence = explain_absence(rank, "resources", "Resources were not sampled", RESOURCES_REMEDY)
        if absence and absence.state == "off" and rank.state == "imported":
            reason = "An imported trace holds no samples of the machine; a recorded run does."
            absence = replace(absence, reason=reason, remedy="")
        if absence is None:
            resources = read_resources(rank, scale, chosen)
            absence = _explain_empty(resources)
            host, gpu = view_host(rank.manifest, resources), view_gpus(rank.manifest, resources)
    except RunError as error:
        absence = _fail("The samples cannot be read", error)
    tensors, tensor_notice = build_part(
        "The allocations cannot be read",
        lambda: (
            explain_absence(rank, "memory", "Allocations were not recorded", MEMORY_REMEDY)
            or view_tensors(rank, request.query)
        ),
    )
    return MemoryPage(
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
    """Explain why there are no GPU figures: the GPU was not sampled, or there is no GPU."""
    signal = next((entry for entry in rank.manifest.signals if entry.name == "gpu"), None)
    if signal is not None:
        return Notice("off", "The GPU was not sampled", signal.reason, "pip install nvidia-ml-py")
    if rank.manifest.devices:
        reason = (
            "This run saw a GPU, and no figure of it was sampled: it was too short, or recorded by an older Stepscope."
        )
        return Notice("empty", "The GPU was not sampled", reason)
    return Notice("empty", "No GPU", "PyTorch saw no CUDA device in this run: it trained on the processor.")


def _fail(title: str, error: RunError) -> Notice:
    log.warning("%s: %s", title, error)
    return Notice("failed", title, str(error), find_remedy(error))


PAGE = Page(
    slug="memory",
    title="Memory and resources",
    order=50,
    key="m",
    template="memory.html",
    build=build,
    follows_steps=True,
)
