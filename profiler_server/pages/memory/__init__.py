"""The Memory and resources page: use of processors, memory, disks and GPUs while steps ran, and memory of tensors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from collector.format.lens import StepRange
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.analysis.memory.resources import Resources, StepScale, read_resources, read_scale
from profiler_server.page import Notice, Page, PageRequest, build_part, explain_absence
from profiler_server.pages.memory.samples import GpuView, HostView, view_gpus, view_host
from profiler_server.pages.memory.tensors import TensorView, view_tensors

log = logging.getLogger(__name__)

RESOURCES_REMEDY = 'Profiler("runs/my-run", resources=True)'
MEMORY_REMEDY = 'Profiler("runs/my-run", memory=True, window=(10, 3))  # three steps in detail, from step 10'


@dataclass(frozen=True)
class MemoryPage:
    """The sections of the page. A section that is None has a notice with the reason."""

    host: HostView | None
    host_notice: Notice | None
    gpu: GpuView | None
    gpu_notice: Notice | None
    tensors: TensorView | None
    tensor_notice: Notice | None


def build(request: PageRequest) -> MemoryPage:
    """Build the page. The step filter limits the samples. `?device=` selects the device, and `?at_ns=` the moment, for
    which the memory of tensors is shown.
    """
    rank = request.rank_run
    resources, absence = build_part("The samples cannot be read", lambda: _read_samples(rank, request.steps))
    gpu = view_gpus(rank.manifest, resources) if resources else None
    tensors, tensor_notice = build_part(
        "The allocations cannot be read",
        lambda: (
            explain_absence(rank, "memory", "Allocations were not recorded", MEMORY_REMEDY)
            or view_tensors(rank, request.query)
        ),
    )
    return MemoryPage(
        host=view_host(rank.manifest, resources) if resources else None,
        host_notice=absence,
        gpu=gpu,
        gpu_notice=None if gpu or absence else explain_no_gpu(rank),
        tensors=tensors,
        tensor_notice=tensor_notice,
    )


def _read_samples(rank: RankRun, steps: StepRange | None) -> Resources | Notice:
    absence = explain_absence(rank, "resources", "Resources were not sampled", RESOURCES_REMEDY)
    if absence and absence.state == "off" and rank.state == "imported":
        reason = "An imported trace holds no samples of the machine; a recorded run does."
        return replace(absence, reason=reason, remedy="")
    if absence is not None:
        return absence
    try:
        scale = read_scale(rank)
    except RunError as error:
        log.warning("the steps of rank %d cannot be read: %s", rank.rank, error)
        scale = StepScale.empty()
    resources = read_resources(rank, scale, (steps.first, steps.last) if steps else None)
    if resources.series:
        return resources
    reason = (
        "The sampler looks every half second, and no look fell into these steps. Choose a wider range."
        if resources.samples > resources.outside
        else "The sampler looks every half second, and the steps were over before its first look."
    )
    return Notice("empty", "No sample in these steps", reason)


def explain_no_gpu(rank: RankRun) -> Notice:
    signal = next((entry for entry in rank.manifest.signals if entry.name == "gpu"), None)
    if signal is not None:
        return Notice("off", "The GPU was not sampled", signal.reason, "pip install nvidia-ml-py")
    if rank.manifest.devices:
        reason = (
            "This run saw a GPU, and no figure of it was sampled: it was too short, or recorded by an older Stepscope."
        )
        return Notice("empty", "The GPU was not sampled", reason)
    return Notice("empty", "No GPU", "PyTorch saw no CUDA device in this run: it used the processor only.")


PAGE = Page(
    slug="memory",
    title="Memory and resources",
    order=50,
    key="m",
    template="memory.html",
    build=build,
    follows_steps=True,
)
