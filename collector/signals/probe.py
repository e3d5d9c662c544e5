"""The probe (opt in): the step whose batch is ready, measured by holding batches back. See `collector.context.probing`."""

from __future__ import annotations

from typing import Any

import torch

from collector.context.probing import Prober, Process
from collector.context.signals import SignalContext
from collector.context.undo import stop_calling

SEVERAL_RANKS = (
    "The run has several ranks: where one is held back, all wait for it, so the probe is for runs of one rank."
)


class ProbeSignal:
    name = "probe"
    option = "probe"

    def __init__(self) -> None:
        self._prober: Prober | None = None

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._prober = Prober(
            context.log,
            context.steps,
            lambda found: context.add_fact("probe", found),
            lambda error: context.fail_signal(self.name, error),
            Process(_synchronize, torch.autograd._profiler_enabled, _find_refusal),
        )
        context.fetch_gates.append(self._pass)

    def pause(self) -> None:
        if self._prober is not None:
            self._prober.stop()

    def remove(self) -> None:
        prober = self._prober
        stop_calling(self._pass, self._context.fetch_gates)
        failed = self._context.notes.signals[self.name]["state"] == "failed"
        if prober is not None and not failed and "probe" not in self._context.notes.facts:
            self._context.set_signal(self.name, "unavailable", prober.reason)
            self._context.warn("probe_unavailable", f"The probe measured nothing. {prober.reason}")

    def _pass(self, iterator: Any) -> None:
        assert self._prober is not None
        self._prober.before_fetch(iterator)
        if self._prober.has_left:
            self._context.fetch_gates.remove(self._pass)


def _find_refusal() -> str:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return SEVERAL_RANKS
    return ""


def _synchronize() -> None:
    """Wait for the work of the device: a step that only was launched is not over."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


SIGNAL = ProbeSignal
