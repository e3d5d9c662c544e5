"""Sentences on waits for data, on queues, and on the gaps of a trace. The terms for waits are those of XProf, the rules
for queues those of MindInsight (two other profilers).

All readings of a pipeline come from the same bottleneck, so that they do not contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collector.format.schema.manifest import Loader
from profiler_server.diagnosis.limits.loading import (
    EMPTY_QUEUE_FRAC,
    FULL_QUEUE_FRAC,
    HIGH_WAIT_FRAC,
    MODERATE_WAIT_FRAC,
)
from profiler_server.diagnosis.limits.verdict import BOUND_FRAC, NAMED_WAIT_FRAC
from profiler_server.facts.loading import Bottleneck, Readiness
from profiler_server.facts.machine import HostWaits
from profiler_server.facts.pipeline import QueueSummary
from profiler_server.format import fill_in, format_duration, format_share, shorten_middle

Tone = Literal["good", "watch", "bad", "plain"]
STAGE_WORDS = {"send": "receiving batches", "pin": "pinning", "h2d": "host-to-device copies"}
"""The names of DataLoader stages in sentences, for stages whose own name does not fit."""


@dataclass(frozen=True)
class Reading:
    """A title and a text on one measured fact. `tone` is the way in which the page marks both."""

    tone: Tone
    title: str
    text: str


_PYTHON_PLACE = re.compile(r"(?:.*/)?(?P<file>[^/]+\.py)\((?P<line>\d+)\): (?P<name>.+)")
_STEP_MARK = re.compile(r"ProfilerStep#\d+")
"""The profiler's own range around a step, which is no work."""
_BUILT_IN = re.compile(r"<built-in (?:function|method) (?P<name>[\w.]+).*>")


def say_host_waits(found: HostWaits | None, noun: str = "step") -> str:
    """Return a sentence on the functions of the host for which the device waits; "" if the device waits little."""
    if found is None or found.waits_ns < BOUND_FRAC * found.step_ns:
        return ""
    named = [
        f"{name_host_work(name)} {format_duration(spent_ns)}"
        for name, spent_ns in found.names
        if spent_ns >= NAMED_WAIT_FRAC * found.waits_ns and not _STEP_MARK.fullmatch(name)
    ]
    if not named:
        return ""
    most = ", ".join(named)
    spent = f"{format_duration(found.waits_ns)} of a {noun} ({format_share(found.waits_ns / found.step_ns)})"
    return f"The device waits {spent} for work of the host: {most}."


def name_host_work(name: str) -> str:
    """Return the name of a slice of the host as it is said: a function of Python with its file and line."""
    if found := _PYTHON_PLACE.fullmatch(name):
        return f"{found['name']}() at {found['file']}:{found['line']}"
    built_in = _BUILT_IN.fullmatch(name)
    return f"{built_in['name']}()" if built_in else shorten_middle(name, 60)


@dataclass(frozen=True)
class Pipeline:
    """The facts of one loader for its readings: the worker queue (`host`) and the pin queue (`device`), None if absent;
    the share of the step that waits for the loader; the readiness of batches; and what limits the step."""

    host: QueueSummary | None
    device: QueueSummary | None
    wait_frac: float
    readiness: Sequence[Readiness]
    limit: Bottleneck


def judge_wait(
    wait_frac: float, has_steps: bool, noun: str = "step", limit: Bottleneck | None = None, source: str = "data"
) -> Reading:
    """Return a reading on how input-bound the run is, by the share of the step (or another `noun`) that waits for data.

    `source` names the loader if there are several. A step that waits although batches are ready is not input-bound. The
    reading then gives the cause of the wait.
    """
    if not has_steps:
        return Reading("plain", "No step was recorded", "The waits show after the first step.")
    waits = f"The {noun} waits for {source} for {format_share(wait_frac)} of its time"
    if wait_frac < MODERATE_WAIT_FRAC:
        return Reading("good", "Not input-bound", f"{waits}, less than {format_share(MODERATE_WAIT_FRAC)}.")
    is_high = wait_frac >= HIGH_WAIT_FRAC
    if limit is not None and limit.cause in _READY_TITLES:
        return Reading("bad" if is_high else "watch", fill_in(_READY_TITLES[limit.cause]), f"{waits}. {limit.reason}")
    if is_high:
        return Reading("bad", "Highly input-bound", f"{waits}; {format_share(HIGH_WAIT_FRAC)} and up is high.")
    return Reading(
        "watch", "Moderately input-bound", f"{waits}; {format_share(MODERATE_WAIT_FRAC)} and up is moderate."
    )


_READY_TITLES = {
    "receiving": "Receiving batches takes long",
    "processor": "No processor is free to receive batches",
    "epoch_start": "The starts of {epochs} wait for data",
}


def read_queues_plainly(pipeline: Pipeline) -> tuple[Reading, ...]:
    """Return readings on how full the queues are, by MindInsight's rules, and on batches in the wrong order."""
    last = pipeline.device or pipeline.host
    depths = () if last is None else (_read_depths(pipeline, last),)
    return (*depths, *_read_order(pipeline.readiness))


def _read_depths(pipeline: Pipeline, last: QueueSummary) -> Reading:
    host, device, share = pipeline.host, pipeline.device, format_share(last.empty_frac)
    if last.empty_frac <= EMPTY_QUEUE_FRAC:
        return _read_filled(pipeline, last)
    if pipeline.limit.cause == "epoch_start":
        text = f"It was empty in {share} of the requests. {pipeline.limit.reason}"
        return Reading("watch", "The queue runs dry, and most batches come in time", text)
    if pipeline.limit.cause in _READY_TITLES:
        text = f"It was empty in {share} of the requests, but slow workers are not the reason. {pipeline.limit.reason}"
        return Reading("watch", "The queue runs dry, not for slow workers", text)
    if device is None:
        text = f"It was empty in {share} of the requests: the workers make batches slower than the {fill_in('{noun}')} uses them."
        return Reading("bad", "The worker queue runs dry", text)
    if host is not None and host.empty_frac > EMPTY_QUEUE_FRAC:
        text = f"Both queues run dry (empty: {format_share(host.empty_frac)} and {share}): the processing stage is the limit."
        return Reading("bad", "The processing is the limit", text)
    if host is not None and host.usage_frac >= FULL_QUEUE_FRAC:
        text = f"The worker queue is {format_share(host.usage_frac)} full while the pin queue is empty in {share}."
        return Reading("bad", "The transfer is the limit", f"{text} The pin-memory thread does not keep up.")
    text = f"The pin queue was empty in {share} of the requests while the worker queue held batches some of the time."
    return Reading("watch", fill_in("The {noun} waits for pinned batches"), text)


def _read_filled(pipeline: Pipeline, last: QueueSummary) -> Reading:
    """Return a reading of a queue that is seldom empty. The step waits for a few late batches, or to receive them."""
    queue = "pin queue" if pipeline.device else "worker queue"
    text = f"In {format_share(last.empty_frac)} of the requests the {queue} was empty."
    if not last.empty_frac:
        text = f"The {queue} was never empty."
    if pipeline.wait_frac < MODERATE_WAIT_FRAC:
        return Reading("good", "Batches are there when asked for", text)
    if pipeline.limit.cause == "epoch_start":
        return Reading(
            "good", "Batches are there when asked for", f"{text} The wait is at the starts of {fill_in('{epochs}')}."
        )
    if pipeline.limit.cause == "making":
        return Reading("watch", "Some batches come late", f"{text} The {fill_in('{noun}')} waits for these batches.")
    return Reading("watch", "Batches are ready, yet receiving one takes long", text)


def _read_order(readiness: Sequence[Readiness]) -> tuple[Reading, ...]:
    """Return a reading if requests often found later batches ready, but not the next one in order; else empty. The
    depth of the queue is then misleading."""
    held = max((entry.held_up_frac for entry in readiness), default=0.0)
    if held < MODERATE_WAIT_FRAC:
        return ()
    text = f"In {format_share(held)} of the requests later batches were done while the next one in order was not."
    return (Reading("watch", "Batches wait for an earlier one", text),)


def read_watched(watched: Loader, wait_frac: float, noun: str = "step") -> Reading:
    """Return a reading on how the items of a watched iterable are made, and on whether the step waits for them."""
    name = f"“{shorten_middle(watched.dataset, 60)}”"
    if wait_frac < MODERATE_WAIT_FRAC:
        return Reading("good", "The watched input keeps up", f"The {noun} hardly waits for {name}.")
    tone: Tone = "bad" if wait_frac >= HIGH_WAIT_FRAC else "watch"
    if watched.reads_ahead:
        text = f"Threads or processes seem to make the items of {name} ahead, and the next one is often not ready."
        return Reading(tone, "The watched input is late", text)
    if watched.reads_ahead is None:
        text = f"The {noun} waits for the next item of {name}; whether anything makes it ahead is not known."
        return Reading(tone, "The watched input is late", text)
    busy = "" if watched.cpu_frac is None else f", on a processor for {format_share(watched.cpu_frac)} of that time"
    text = f"It makes each item of {name} when the {noun} asks for it{busy}: nothing reads ahead."
    return Reading(tone, "The recorded thread reads its own input", text)


def say_completeness(found: str) -> str:
    """Return a sentence on the trace from the text of `read_completeness`."""
    if found == "complete":
        return "complete"
    return f"not complete: {found}"


def read_bottleneck(limit: Bottleneck) -> Reading:
    """Return a reading on the stage or other cause that limits the step, or that none does."""
    if limit.cause == "processor":
        return Reading("watch", "Limited by the processors", limit.reason)
    if limit.cause == "epoch_start":
        return Reading("watch", fill_in("Limited by the starts of {epochs}"), limit.reason)
    if limit.cause == "overhead":
        return Reading("bad", "Limited by the DataLoader itself", limit.reason)
    if limit.cause == "unmarked":
        return Reading("watch", "Limited by what no stage marks", limit.reason)
    if limit.stage is None:
        return Reading("good", fill_in("No stage holds the {noun} up"), limit.reason)
    tone: Tone = "watch" if limit.cause == "receiving" else "bad"
    return Reading(tone, f"Limited by {STAGE_WORDS.get(limit.stage, limit.stage)}", limit.reason)
