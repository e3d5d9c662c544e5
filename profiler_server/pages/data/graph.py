"""The stage graph of the Data pipeline page: a lane for each kind of process, with its stages in order, and queues
between the lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from profiler_server.analysis.data.queues import DEVICE_QUEUE, HOST_QUEUE, QueueKey
from profiler_server.facts.pipeline import WORKER_STAGES, OwnStage, QueueSummary, StageSummary
from profiler_server.format import fill_in, format_count, format_duration, format_share, shorten_middle
from profiler_server.pages.data.facts import PipelineFacts, label_queue

_STAGES: Mapping[str, tuple[str, str]] = {
    "read": ("Read", "dataset[i], without its transforms"),
    "transform": ("Transform", "transforms of the dataset"),
    "collate": ("Collate", "samples to one batch"),
    "send": ("Send", "batch to the worker queue"),
    "pin": ("Pin", "copy to pinned memory"),
    "h2d": ("Host-to-device", "batch to the device, preparation"),
    "step": ("Step", "forward, backward, update"),
}
"""Label and hint of each stage."""
LOW_EMPTY_FRAC = 0.3
OWN_LIMIT = 24
"""The greatest number of the user's own stages, and of their queues, in the graph. The totals list all of them."""


@dataclass(frozen=True)
class Share:
    """One bar of a stage. `label` is an activity; `text` and `percent` are its share of the time of the stage."""

    label: str
    text: str
    percent: float
    kind: Literal["work", "input_wait", "output_wait"]


@dataclass(frozen=True)
class StageBox:
    """One stage. `work` is the mean time per batch, step or item, as `per` has it. If the stage was not measured,
    `shares` is empty, and `note` is the reason.
    """

    name: str
    label: str
    hint: str
    work: str
    per: str
    shares: tuple[Share, ...]
    is_bottleneck: bool
    note: str = ""


@dataclass(frozen=True)
class Lane:
    """One kind of process, with the stages that such a process runs one after the other."""

    title: str
    note: str
    stages: tuple[StageBox, ...]
    kind: Literal["lane"] = "lane"


@dataclass(frozen=True)
class QueueBox:
    """One queue. `fill` is mean depth / capacity in percent. `query` opens or closes the chart of the depth."""

    name: str
    label: str
    depth: str
    usage: str
    empty: str
    fill: float
    is_starved: bool
    is_open: bool
    query: Mapping[str, str]
    kind: Literal["queue"] = "queue"


def label_stage(name: str) -> str:
    return _STAGES[name][0] if name in _STAGES else name


def build_graph(facts: PipelineFacts, open_queue: str) -> tuple[Lane | QueueBox, ...]:
    """Return the lanes and queues of the loader from left to right. `open_queue` is the queue whose chart is open."""
    boxes = {
        key.name: _build_queue(key, row, open_queue) for key, row in facts.queues.items() if key.loader is not None
    }
    loader = facts.loader
    workers = loader.num_workers if loader else 0
    nodes: list[Lane | QueueBox | None] = []
    loading = _build_stages(facts, WORKER_STAGES)
    training = _build_stages(facts, ("h2d", "step"))
    if workers == 0 and HOST_QUEUE not in boxes:
        title = "Main process" if loading else "Script"
        note = fill_in(
            "makes each batch itself, then computes" if loading else "feeds the {noun} itself: no DataLoader was seen"
        )
        if loader is not None and loader.watched:
            note = f"waits for each item of “{shorten_middle(loader.dataset, 60)}”, then computes"
            return (Lane("Main process", note, training),)
        return (Lane(title, note, (*loading, *training)),)
    nodes.append(Lane(f"{workers} worker process{'es' if workers != 1 else ''}", "each makes whole batches", loading))
    nodes.append(boxes.get(HOST_QUEUE))
    if DEVICE_QUEUE in boxes or "pin" in facts.stages:
        nodes.append(Lane("Pin-memory thread", "of the main process", _build_stages(facts, ("pin",))))
        nodes.append(boxes.get(DEVICE_QUEUE))
    nodes.append(Lane("Main process", f"one {facts.noun} after the other", training))
    return tuple(node for node in nodes if node is not None)


def build_own_graph(facts: PipelineFacts, open_queue: str) -> tuple[Lane | QueueBox, ...]:
    """Return the user's own stages, each between its input and its output queues; empty without own stages."""
    keys = [key for key in facts.queues if key.loader is None][:OWN_LIMIT]
    boxes = {key.name: _build_queue(key, facts.queues[key], open_queue) for key in keys}
    nodes: list[Lane | QueueBox] = []
    limit = facts.own_bottleneck.stage if facts.own_bottleneck else None
    for stage in facts.own_stages[:OWN_LIMIT]:
        fed = {name for other in facts.own_stages for name in other.outputs}
        nodes += [boxes.pop(name) for name in stage.inputs if name in boxes and name not in fed]
        nodes.append(_build_own_lane(stage, stage.name == limit))
        nodes += [boxes.pop(name) for name in stage.outputs if name in boxes]
    return (*nodes, *boxes.values())


def _build_own_lane(stage: OwnStage, is_bottleneck: bool) -> Lane:
    replicas = stage.summary.replicas
    box = _build_stage(stage.summary, is_bottleneck, "step")
    # A stage of the user's code may have the same name as a stage of a DataLoader.
    box = replace(box, label=stage.name, hint="", per="an item")
    return Lane(stage.name, f"{replicas} replica{'s' if replicas != 1 else ''}", (box,))


def _build_stages(facts: PipelineFacts, names: Sequence[str]) -> tuple[StageBox, ...]:
    boxes = []
    for name in names:
        row = facts.stages.get(name) or _derive_stage(facts, name)
        if row is not None:
            boxes.append(_build_stage(row, facts.bottleneck.stage == name, facts.noun))
        elif name in ("read", "transform", "collate", "pin") and facts.loader is not None:
            is_found = not facts.stages or name != "transform"
            note = "not measured" if is_found else "none found: what the dataset does counts as read"
            boxes.append(StageBox(name, *_STAGES[name], "", "", (), False, note))
    return tuple(boxes)


def _derive_stage(facts: PipelineFacts, name: str) -> StageSummary | None:
    """Return the stage `h2d` or `step`, from the mean phases; None for any other stage, or if no step is averaged."""
    waits = facts.waits
    count = int(waits.selection.kept.sum())
    if name not in ("h2d", "step") or not count:
        return None
    whole = waits.mean_ns(waits.duration_ns) or 1.0
    h2d = waits.mean_ns(waits.h2d_ns)
    if name == "h2d":
        return StageSummary(name, 1, count, h2d, h2d / whole, None, None)
    wait = waits.mean_ns(waits.data_wait_ns)
    work = whole - wait - h2d
    return StageSummary(name, 1, count, work, work / whole, wait / whole, None)


def _build_stage(row: StageSummary, is_bottleneck: bool, noun: str) -> StageBox:
    infers = row.name == "step" and noun != "step"
    kinds = (
        ("busy", row.busy_frac, "work"),
        ("waits for input", row.input_wait_frac, "input_wait"),
        ("waits for output", row.output_wait_frac, "output_wait"),
    )
    shares = tuple(
        Share(label, format_share(value), round(min(100.0 * value, 100.0), 2), kind)  # type: ignore[arg-type]
        for label, value, kind in kinds
        if value is not None
    )
    return StageBox(
        name=row.name,
        label=noun.capitalize() if infers else label_stage(row.name),
        hint="forward" if infers else _STAGES.get(row.name, ("", ""))[1],
        work=format_duration(row.mean_ns),
        per=f"a {noun}" if row.name in ("h2d", "step") else "a batch",
        shares=shares,
        is_bottleneck=is_bottleneck,
    )


def _build_queue(key: QueueKey, row: QueueSummary, open_queue: str) -> QueueBox:
    is_open = key.name == open_queue
    query = {"tab": "processing"} if is_open else {"tab": "processing", "queue": key.name}
    return QueueBox(
        name=key.name,
        label=label_queue(key),
        depth=f"{row.mean_depth:.1f} of {format_count(row.capacity)}" if row.capacity else f"{row.mean_depth:.1f}",
        usage=format_share(row.usage_frac) if row.capacity else "no limit,",
        empty=format_share(row.empty_frac),
        fill=round(min(100.0 * row.usage_frac, 100.0), 2),
        is_starved=row.empty_frac > LOW_EMPTY_FRAC,
        is_open=is_open,
        query=query,
    )
