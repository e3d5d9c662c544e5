"""What loaders of every kind share: the hook around the start of an epoch, and how many samples a batch has."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from collector.context.signals import SignalContext
from collector.edge import hide_frame
from collector.ring.codes import LOADER_READY, LOADER_START

_MOST_SAMPLES = (1 << 32) - 1
_log = logging.getLogger("stepscope")


def make_iter_hook(context: SignalContext, original: Any, begin: Callable[[Any], None] | None = None) -> Any:
    """Return what stands in for the `__iter__` of a loader. `begin` is called with the loader before it."""
    log, steps = context.log, context.steps
    words, mask, following, thread = log.words, log.mask, log.following, log.thread
    now, get_ident = time.perf_counter_ns, threading.get_ident

    def __iter__(loader: Any) -> Any:
        if get_ident() != thread[0]:
            try:
                return original(loader)
            except BaseException as error:
                hide_frame(error)
                raise
        if begin is not None:
            begin(loader)
        steps.fetch_starts()
        words[following() & mask] = now() + LOADER_START
        try:
            return original(loader)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            words[following() & mask] = now() + LOADER_READY

    return __iter__


def count_samples(batch: Any, depth: int = 4, collated: bool = True) -> int:
    """Return the length of the first tensor or list found in the batch, 0 where there is none to be seen cheaply.

    The first item of so many nested lists and dicts is looked into. Where nothing was `collated`, a vector or a number
    is one sample.
    """
    try:
        return _look_for_samples(batch, depth, collated)
    except Exception as error:  # noqa: BLE001  an edge on the hot path: a batch of the user's may be anything
        _log.debug("stepscope: the samples of a batch are not counted: %r", error)
        return 0


def _look_for_samples(batch: Any, depth: int, collated: bool) -> int:
    for _ in range(depth):
        kind = type(batch)
        if kind is list or kind is tuple or isinstance(batch, (list, tuple)):
            if not batch:
                return 0
            first = batch[0]
            if isinstance(first, (str, int, float)):
                return len(batch)
            batch = first
        elif isinstance(batch, dict):
            # Not its own values(): one that reads lazily must read no earlier than without us.
            batch = next(iter(dict.values(batch)), None)
        else:
            break
    shape = getattr(batch, "shape", None)
    if not collated and shape is not None and len(shape) < 2:
        return 1
    return min(max(int(shape[0]), 0), _MOST_SAMPLES) if shape is not None and len(shape) else 0
