"""Collectives that hold the training thread: calls of a ProcessGroup, and Work.wait."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

from collector.context import SignalContext
from collector.ring.codes import COLLECTIVE_END, COLLECTIVE_START

_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
    "send",
    "recv",
)


class CommunicationSignal:
    name = "communication"
    option = ""

    def install(self, context: SignalContext) -> None:
        try:
            from torch._C import _distributed_c10d as c10d
        except ImportError:
            context.set_signal(self.name, "unavailable", "This PyTorch was built without torch.distributed.")
            return
        from torch._dynamo.eval_frame import skip_code

        targets = [(c10d.ProcessGroup, name) for name in _METHODS if hasattr(c10d.ProcessGroup, name)]
        for owner, name in [*targets, (c10d.Work, "wait")]:
            hook = _make_hook(context, getattr(owner, name))
            skip_code(hook.__code__)
            context.undo.patch(owner, name, hook)

    def remove(self) -> None:
        pass


def _make_hook(context: SignalContext, original: Any) -> Any:
    log = context.log
    words, mask, following, thread = log.words, log.mask, log.following, log.thread
    now, get_ident = time.perf_counter_ns, threading.get_ident

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread[0]:
            return original(*args, **kwargs)
        words[following() & mask] = now() + COLLECTIVE_START
        try:
            return original(*args, **kwargs)
        finally:
            words[following() & mask] = now() + COLLECTIVE_END

    return collective


SIGNAL = CommunicationSignal
