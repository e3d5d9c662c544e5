"""What waits and queues say, in plain words: XProf's for the wait, MindInsight's rules for the queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_server.analysis.data.depths import DEVICE_QUEUE, HOST_QUEUE
from profiler_server.analysis.data.pipeline import Bottleneck
from profiler_server.analysis.results import QueueSummary
from profiler_server.format import format_share
from profiler_server.pages.data.facts import PipelineFacts
from profiler_server.pages.data.graph import STAGE_LABELS

Tone = Literal["good", "watch", "bad", "plain"]
MODERATE_FRAC = 0.05
HIGH_FRAC = 0.20
"""XProf's words: from 5 % of the step spent waiting a run is moderately input-bound, from 20 % highly."""

MANY_EMPTY_FRAC = 0.3
FULL_FRAC = 0.7


@dataclass(frozen=True)
class Reading:
    """One finding in plain words. `tone` says how it is marked."""

    tone: Tone
    title: str
    text: str


def judge_wait(wait_frac: float, has_steps: bool, noun: str = "step") -> Reading:
    """Say how input-bound the run is by the share of the step, or of another noun, that waits for data."""
    if not has_steps:
        return Reading("plain", "No step was recorded", "The waits show after the first training step.")
    share = format_share(wait_frac)
    if wait_frac >= HIGH_FRAC:
        return Reading(
            "bad", "Highly input-bound", f"The {noun} waits for data for {share} of its time; 20 % and up is high."
        )
    if wait_frac >= MODERATE_FRAC:
        return Reading(
            "watch",
            "Moderately input-bound",
            f"The {noun} waits for data for {share} of its time; 5 % and up is moderate.",
        )
    return Reading("good", "Not input-bound", f"The {noun} waits for data for {share} of its time, less than 5 %.")


def read_queues_plainly(facts: PipelineFacts) -> tuple[Reading, ...]:
    """Read the queues by MindInsight's rules, and name what limits the step."""
    host, device = _find_summary(facts, HOST_QUEUE), _find_summary(facts, DEVICE_QUEUE)
    readings = []
    last = device or host
    if last is not None:
        readings.append(_read_depths(host, device, last, facts.waits.wait_frac))
    readings.extend(_read_order(facts))
    if facts.own_bottleneck is not None:
        readings.append(read_bottleneck(facts.own_bottleneck))
    if facts.loader is not None or (facts.queues and facts.own_bottleneck is None):
        readings.append(read_bottleneck(facts.bottleneck))
    return tuple(readings)


def explain_no_queue(facts: PipelineFacts) -> str:
    """Say why the run has no queue."""
    if facts.own_stages:
        return "Your own stages use no queue that is watched: wrap it with collector.queue(name, q)."
    if facts.loader is None:
        return "No DataLoader was used, so there is no queue: the data comes from the training script itself."
    if facts.loader.watched:
        return "The input is an iterable that the script watches with collector.watch: it has no queue that is seen."
    if facts.loader.num_workers == 0:
        return (
            "num_workers=0: there are no worker processes and so no queue. "
            "The training process makes each batch itself while the device waits."
        )
    return "No queue depth was sampled for this DataLoader."


def _read_depths(
    host: QueueSummary | None, device: QueueSummary | None, last: QueueSummary, wait_frac: float
) -> Reading:
    share = format_share(last.empty_frac)
    if last.empty_frac <= MANY_EMPTY_FRAC:
        text = f"The {'pin queue' if device else 'worker queue'} was empty in only {share} of the samples."
        if wait_frac < MODERATE_FRAC:
            return Reading("good", "Batches are there when asked for", text)
        why = "So most of the wait is for receiving a batch (unpickling, or a core that is taken), not for making it."
        return Reading("watch", "Batches are ready, yet taking one takes long", f"{text} {why}")
    if device is None:
        return Reading(
            "bad",
            "The worker queue runs dry",
            f"It was empty in {share} of the samples: the workers make batches slower than the step uses them.",
        )
    if host is not None and host.empty_frac > MANY_EMPTY_FRAC:
        text = f"Both queues run dry (empty: {format_share(host.empty_frac)} and {share}): the processing stage is the limit."
        return Reading("bad", "The processing is the limit", text)
    if host is not None and host.usage_frac >= FULL_FRAC:
        text = f"The worker queue is {format_share(host.usage_frac)} full while the pin queue is empty in {share}."
        return Reading("bad", "The transfer is the limit", f"{text} The pin-memory thread does not keep up.")
    text = f"The pin queue was empty in {share} of the samples while the worker queue held batches some of the time."
    return Reading("watch", "The step waits for pinned batches", text)


def _read_order(facts: PipelineFacts) -> tuple[Reading, ...]:
    """Say where batches were ready but not the next one in order: a queue that is not empty then misleads."""
    held = max((entry.held_up_frac for entry in facts.readiness), default=0.0)
    if held < MODERATE_FRAC:
        return ()
    text = f"In {format_share(held)} of the samples later batches were done while the next one in order was not."
    return (Reading("watch", "Batches wait for an earlier one", text),)


def read_bottleneck(limit: Bottleneck) -> Reading:
    """Name the stage that limits the step, or say that none does."""
    if limit.stage is None:
        return Reading("good", "No stage holds the step up", limit.reason)
    return Reading("bad", f"Limited by {STAGE_LABELS.get(limit.stage, limit.stage).lower()}", limit.reason)


def _find_summary(facts: PipelineFacts, name: str) -> QueueSummary | None:
    return next((row for key, row in facts.queues.items() if key.name == name and key.loader is not None), None)
