"""Record communication: collectives that hold the training thread, and DDP's reductions during the backward.

Methods of ProcessGroup and Work.wait are patched; FSDP2 uses these methods too. Each call is listed with its bytes. DDP
reduces its gradients in C++, where no call is seen. The signal `backward` finds the wait of the backward. DDP's own
records give the duration of the reduction, including its hidden time; reading them takes some 90 µs, so they are read
for some steps only.
"""

from __future__ import annotations

import functools
import math
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from collector.context.hooks import bind, skip_code
from collector.context.signals import Signal, SignalContext
from collector.edge import Edge, hide_frame, uncounted
from collector.ring.codes import (
    AWAITED,
    CALLED,
    CALLED_BYTES,
    COLLECTIVE_END,
    COLLECTIVE_START,
    REDUCED,
    REDUCED_FROM,
)
from collector.ring.packing import pack_call

READING_SHARE = 0.002
"""Largest fraction of the backward time that may be spent on reading DDP's records."""
TRIALS = 5
"""Number of readings at the start, one for each backward, that find the cost of a reading."""
_DEFAULT_RATE = 100
_MOST_KINDS = 1000
_MOST_WAITS = 512
_MOST_TENSORS = 10_000
_MOST_MEMBERS = 256
_LONGEST_LABEL = 100
_Describe = Callable[[tuple[Any, ...], Any], None]

# Methods of a ProcessGroup, by the place of the argument that holds what is sent; a barrier sends nothing.
_METHODS = {
    0: "barrier monitored_barrier",
    1: "allreduce allreduce_coalesced broadcast reduce send recv recv_anysource",
    2: "allgather _allgather_base all_gather_single all_gather_single_coalesced allgather_coalesced "
    "allgather_into_tensor_coalesced reduce_scatter _reduce_scatter_base reduce_scatter_single "
    "reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced gather scatter alltoall alltoall_base all_to_all_single",
}
_DDP = "allreduce (DDP)"


class CommunicationSignal(Signal):
    name = "communication"

    def install(self, context: SignalContext) -> None:
        try:
            from torch._C import _distributed_c10d as c10d
        except ImportError:
            context.set_signal(self.name, "unavailable", "This PyTorch was built without torch.distributed.")
            return

        calls = _Calls(context)
        for place, name in ((place, name) for place, names in _METHODS.items() for name in names.split()):
            if hasattr(c10d.ProcessGroup, name):
                self._patch(context, c10d.ProcessGroup, name, calls.make_describer(name.strip("_"), place))
        hook = _make_wait_hook(context, c10d.Work.wait, calls.waited_for)
        skip_code(hook.__code__)
        context.undo.patch(c10d.Work, "wait", hook)
        if hasattr(c10d, "Reducer"):
            self._reductions = _Reductions(context, calls)
            context.module_watchers.append(self._reductions.find)
            context.wait_watchers.append(self._reductions.read)

    def _patch(self, context: SignalContext, owner: Any, name: str, describe: _Describe) -> None:
        hook = _make_hook(context, getattr(owner, name), describe)
        for function in (hook, describe):
            skip_code(function.__code__)
        context.undo.patch(owner, name, hook)


class _Calls:
    """Writes calls of collectives to the log. After an error it writes no more; the time of the calls is still
    measured.
    """

    def __init__(self, context: SignalContext) -> None:
        self._context = context
        self._kinds: dict[tuple[str, str, Any], int] = {}
        self._serial = 0
        self.waited_for: dict[int, int] = {}
        """Serial number of each asynchronous call, by the `id` of the call's Work object."""
        self._is_on = True

    def make_describer(self, name: str, place: int) -> _Describe:
        """Return a function that takes the arguments and the result of a call of the method `name`, and writes the call
        to the log.

        `place` is the index of the argument that holds the sent tensors, 0 if nothing is sent.
        """

        def describe(args: tuple[Any, ...], result: Any) -> None:
            if not self._is_on:
                return
            try:
                self._describe(name, args, args[place] if 0 < place < len(args) else None, result)
            except Exception as error:  # noqa: BLE001  an edge: a backend of the user's may be called with anything
                self._give_up(error)

        return describe

    def write(self, kind: tuple[str, str, Any], size: int, group: Any, waits: bool = False) -> None:
        """Write a call to the log. A new kind is also written to the notes. `size` is the number of bytes; `waits`
        means that a wait for the call will follow.
        """
        what = self._kinds.get(kind)
        if what is None:
            what = self._add_kind(kind, group)
        log = self._context.log
        self._serial += 1
        log.write(CALLED, pack_call(self._serial, waits, what))
        log.write(CALLED_BYTES, size)

    def _describe(self, name: str, args: tuple[Any, ...], sent: Any, result: Any) -> None:
        group, (size, dtype) = args[0], _measure(sent)
        waits = hasattr(result, "wait")
        self.write((name, group.group_name, dtype), size, group, waits)
        if waits:
            if len(self.waited_for) >= _MOST_WAITS:  # the script never waits for these calls
                self.waited_for.clear()
            self.waited_for[id(result)] = self._serial

    def _add_kind(self, kind: tuple[str, str, Any], group: Any) -> int:
        if len(self._kinds) >= _MOST_KINDS:
            return _MOST_KINDS
        name, group_name, dtype = kind
        size = group.size() if group is not None else None
        text = None if dtype is None else str(dtype).removeprefix("torch.")
        entry = {"name": name, "group": group_name, "group_size": size, "dtype": text}
        self._context.notes.collectives.append({**entry, **_describe_group(group)})
        self._context.save_notes()
        number = self._kinds[kind] = len(self._kinds)
        return number

    def _give_up(self, error: Exception) -> None:
        self._is_on = False
        self._context.warn("collectives", f"Collectives are timed but no longer listed: {error!r}.")


def _describe_group(group: Any) -> dict[str, Any]:
    """Return the label and the ranks of a group. `ranks` is empty for a group of all ranks, and for a group of more
    than 256. There is only the label if torch no longer keeps the group.
    """
    told: dict[str, Any] = {"label": str(getattr(group, "group_desc", ""))[:_LONGEST_LABEL]}
    try:
        ranks = torch.distributed.get_process_group_ranks(group)
        is_whole = len(ranks) == torch.distributed.get_world_size()
    except (KeyError, ValueError, TypeError, RuntimeError, AttributeError):
        return told  # torch does not keep this group
    return {
        **told,
        "is_whole": is_whole,
        "ranks": sorted(ranks) if len(ranks) <= _MOST_MEMBERS and not is_whole else [],
    }


def _measure(sent: Any) -> tuple[int, Any]:
    size, dtype = 0, None
    pending = [sent]
    for item in pending:
        if isinstance(item, torch.Tensor):
            size += item.numel() * item.element_size()
            dtype = item.dtype
        elif isinstance(item, (list, tuple)) and len(pending) < _MOST_TENSORS:
            pending += item
    return size, dtype


class _Reductions:
    """Reads DDP's own records of gradient reductions, for DDP modules on the CPU that were called in the first steps."""

    def __init__(self, context: SignalContext, calls: _Calls) -> None:
        from torch.nn.parallel import DistributedDataParallel

        self._kind = DistributedDataParallel
        self._context = context
        self._calls = calls
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._count = 0
        self._pace = ReadingPace()

    def find(self, module: Any) -> None:
        if not isinstance(module, self._kind) or module in self._modules or module.device_type != "cpu":
            return  # on a CUDA device, DDP synchronises to read its times
        self._modules.add(module)
        # By default DDP times every 100th step.
        module._set_ddp_runtime_logging_sample_rate(1)
        known = weakref.ref(module)
        self._context.undo.call(lambda: _restore_rate(known()))

    def read(self, backward_ns: int) -> None:
        """Receive the end of a backward. If a reading is due, read DDP's record of the reduction in it, and write this
        to the log.

        The interval between readings is a power of two, so that ranks with different intervals share some backwards.
        """
        self._count += 1
        if self._count % self._pace.choose_every(backward_ns):
            return
        modules = [module for module in self._modules if module.require_backward_grad_sync]
        if not modules:
            return
        with Edge(self._give_up):  # the records are private to DDP
            before = time.perf_counter_ns()
            found = [entry for module in modules if (entry := _read_reduction(module, backward_ns))]
            self._write(found, modules[0])
            self._pace.note(time.perf_counter_ns() - before)

    def _give_up(self, error: Exception) -> None:
        self._modules.clear()
        self._context.warn("ddp_records", f"DDP's records could not be read: {error!r}.")

    def _write(self, found: list[_Reduction], module: Any) -> None:
        if not found:
            return
        log, first = self._context.log, found[0]
        log.write(REDUCED, sum(entry.duration_ns for entry in found))
        age_ns = time.time_ns() - first.start_unix_ns
        log.write(REDUCED_FROM, time.perf_counter_ns() - age_ns)
        group, weight = module.process_group, next(module.parameters())
        self._calls.write((_DDP, group.group_name, weight.dtype), sum(entry.bytes for entry in found), group)


class ReadingPace:
    """The interval between readings, in backwards. It follows from the cheapest reading: a busy machine slows single
    ones.
    """

    def __init__(self) -> None:
        self._readings = 0
        self._cost_ns = 0

    def note(self, took_ns: int) -> None:
        self._readings += 1
        self._cost_ns = min(took_ns, self._cost_ns or took_ns)

    def choose_every(self, backward_ns: int) -> int:
        if self._readings < TRIALS:
            return 1
        return _next_power(math.ceil(self._cost_ns / (READING_SHARE * max(backward_ns, 1))))


class _Reduction(NamedTuple):
    start_unix_ns: int
    duration_ns: int
    bytes: int


def _read_reduction(module: Any, backward_ns: int) -> _Reduction | None:
    """Return DDP's record of the last backward's reduction (all its all-reduces); None if nothing was reduced."""
    module.logger.set_runtime_stats_and_log()  # by itself, DDP does so when the next forward begins
    records = module._get_ddp_logging_data()
    age_ns = time.time_ns() - records.get("backward_comm_time_end", 0)
    # After a backward without reduction, the records are those of an earlier one.
    if not 0 <= age_ns < backward_ns:
        return None
    duration = int(records["backward_comm_time"])
    start = int(records.get("backward_comm_time_end", 0)) - duration
    size = int(records.get("total_parameter_size_bytes", 0))
    return _Reduction(start, duration, size) if duration else None


def _next_power(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


def _restore_rate(module: Any) -> None:
    if module is not None:
        module._set_ddp_runtime_logging_sample_rate(_DEFAULT_RATE)


def _make_wait_hook(context: SignalContext, original: Any, waited_for: dict[int, int]) -> Any:
    """Return a replacement of `Work.wait` that first logs which call it waits for. So the log names this call even if
    the wait never ends.

    `waited_for` maps the id of a Work object to the serial number of its call.
    """
    log = context.log
    words, mask, following, thread, now, get_ident = bind(log)

    @functools.wraps(original)
    @uncounted
    def wait(*args: Any, **kwargs: Any) -> Any:
        try:
            if get_ident() != thread[0]:
                return original(*args, **kwargs)
            serial = waited_for.pop(id(args[0]), 0) if args else 0
            words[following() & mask] = now() + COLLECTIVE_START
            if serial:
                words[following() & mask] = serial + AWAITED
            try:
                return original(*args, **kwargs)
            except BaseException:
                if serial:
                    words[following() & mask] = AWAITED
                raise
            finally:
                words[following() & mask] = now() + COLLECTIVE_END
        except BaseException as error:
            hide_frame(error)
            raise

    return wait


def _make_hook(context: SignalContext, original: Any, describe: _Describe) -> Any:
    log = context.log
    words, mask, following, thread, now, get_ident = bind(log)

    @functools.wraps(original)
    @uncounted
    def collective(*args: Any, **kwargs: Any) -> Any:
        try:
            if get_ident() != thread[0]:
                return original(*args, **kwargs)
            words[following() & mask] = now() + COLLECTIVE_START
            try:
                result = original(*args, **kwargs)
            finally:
                words[following() & mask] = now() + COLLECTIVE_END
        except BaseException as error:
            hide_frame(error)
            raise
        describe(args, result)
        return result

    return collective


SIGNAL = CommunicationSignal
