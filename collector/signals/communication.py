"""Communication: collectives that hold the training thread, and what DDP reduces while the backward computes.

Calls of a ProcessGroup and of Work.wait are patched; FSDP2 makes such calls too. DDP reduces its gradients in C++,
where no call is seen. What the backward waits for is found by the signal `backward`; how long the reduction took, the
hidden part included, is in DDP's own records, which take some 90 µs to read and so are read for some steps only.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import Any

from collector.context.signals import SignalContext
from collector.ring.codes import COLLECTIVE_END, COLLECTIVE_START, REDUCED
from collector.ring.words import CODE_SHIFT

READING_SHARE = 0.002
"""At most so much of the time between two backwards goes into reading DDP's records."""
_DEFAULT_RATE = 100

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
        if hasattr(c10d, "Reducer"):
            self._reductions = _Reductions(context)
            context.module_watchers.append(self._reductions.find)
            context.wait_watchers.append(self._reductions.read)

    def remove(self) -> None:
        pass


class _Reductions:
    """Reads the records of the DDP modules that the first steps have called."""

    def __init__(self, context: SignalContext) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self._kind = DistributedDataParallel
        self._context = context
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pause_ns = 0
        self._read_at = 0

    def find(self, module: Any) -> None:
        if not isinstance(module, self._kind) or module in self._modules or module.device_type != "cpu":
            return  # on a CUDA device, DDP synchronises to read its times
        self._modules.add(module)
        # By default DDP times every 100th step.
        module._set_ddp_runtime_logging_sample_rate(1)
        known = weakref.ref(module)
        self._context.undo.call(lambda: _restore_rate(known()))

    def read(self, backward_ns: int) -> None:
        """Write how long the reduction of the backward that has just ended took, if it is time to."""
        before = time.perf_counter_ns()
        if before - self._read_at < self._pause_ns:
            return
        modules = [module for module in self._modules if module.require_backward_grad_sync]
        if not modules:
            return
        try:
            total = sum(_read_reduction(module, backward_ns) for module in modules)
        except Exception as error:  # noqa: BLE001  an edge: private records of DDP
            self._modules.clear()
            self._context.warn("ddp_records", f"DDP's records could not be read: {error!r}.")
            return
        if total:
            self._context.log.write(REDUCED >> CODE_SHIFT, total)
        self._read_at = time.perf_counter_ns()
        self._pause_ns = int((self._read_at - before) / READING_SHARE)


def _read_reduction(module: Any, backward_ns: int) -> int:
    """Return ns from the first bucket's all-reduce to the end of the last; 0 if this backward reduced nothing."""
    module.logger.set_runtime_stats_and_log()  # by itself, DDP does so when the next forward begins
    records = module._get_ddp_logging_data()
    age_ns = time.time_ns() - records.get("backward_comm_time_end", 0)
    # After a backward without reduction, the records are those of an earlier one.
    return int(records["backward_comm_time"]) if 0 <= age_ns < backward_ns else 0


def _restore_rate(module: Any) -> None:
    if module is not None:
        module._set_ddp_runtime_logging_sample_rate(_DEFAULT_RATE)


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
