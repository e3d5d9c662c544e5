"""Loaders of the package torchdata, where the script has imported it: StatefulDataLoader and torchdata.nodes.

StatefulDataLoader inherits from DataLoader and its fetches are seen by the signal `loader`; its start and its workers
are its own. A loader of nodes has nothing of DataLoader: its fetches are written here.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from collector.context.hooks import make_span_hook
from collector.context.loaders import count_samples
from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, unseen
from collector.ring.codes import (
    BATCH,
    FETCH_END,
    FETCH_START,
    FETCH_STOP,
    LOADER,
    LOADER_READY,
    LOADER_START,
    SAMPLES,
)
from collector.ring.packing import pack_fetch

STEPS_TO_LOOK = 3
_DEPTH = 1
"""A pipeline need not collate: what lies deeper in a batch may be a single sample."""
_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
_NODES = "torchdata.nodes.loader"


class TorchdataSignal(Signal):
    name = "torchdata"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._patched: set[str] = set()
        self._look()
        context.boundaries.append(self._on_step)

    def _on_step(self, step: int) -> None:
        """Look again: the script may have imported the package after the recording had begun."""
        self._look()
        if step >= STEPS_TO_LOOK:
            self._context.boundaries.remove(self._on_step)

    def _look(self) -> None:
        undo = self._context.undo
        for name, patch in ((_STATEFUL, self._patch_stateful), (_NODES, self._patch_nodes)):
            module = sys.modules.get(name)
            if module is not None and name not in self._patched:
                self._patched.add(name)
                patch(undo, module)

    def _patch_stateful(self, undo: Any, module: Any) -> None:
        steps = self._context.steps
        self._watch_start(undo, module.StatefulDataLoader, lambda loader: steps.fetch_starts())

    def _patch_nodes(self, undo: Any, module: Any) -> None:
        iterator = module.LoaderIterator
        self._watch_start(undo, module.Loader, self._begin_epoch)
        undo.patch(iterator, "__next__", self._make_next(iterator.__next__))

    def _watch_start(self, undo: Any, kind: Any, begin: Callable[[Any], None]) -> None:
        hook = make_span_hook(self._context.log, kind.__iter__, LOADER_START, LOADER_READY, begin)
        undo.patch(kind, "__iter__", hook)

    def _begin_epoch(self, loader: Any) -> None:
        loaders = self._context.loaders
        with self._context.shielded(self.name):
            if loaders.begin_epoch(loader) == 1:
                self._context.add_loader(_describe_nodes(loaders.number(loader), loader))
        self._context.steps.fetch_starts()

    def _make_next(self, original: Any) -> Any:
        log, steps, loaders = self._context.log, self._context.steps, self._context.loaders
        words, mask, following, thread = log.words, log.mask, log.following, log.thread
        now, get_ident = time.perf_counter_ns, threading.get_ident

        def __next__(iterator: Any) -> Any:
            if get_ident() != thread[0]:
                with unseen:
                    return original(iterator)
            loader = iterator.loader
            place = pack_fetch(loaders.epoch(loader), loaders.number(loader))
            steps.fetch_starts(place)
            words[following() & mask] = place + LOADER
            words[following() & mask] = now() + FETCH_START
            try:
                batch = original(iterator)
            except BaseException as error:
                words[following() & mask] = now() + FETCH_STOP
                if isinstance(error, StopIteration):
                    steps.fetch_stops()
                hide_frame(error)
                raise
            words[following() & mask] = iterator._num_yielded - 1 + BATCH
            words[following() & mask] = now() + FETCH_END
            words[following() & mask] = count_samples(batch, _DEPTH) + SAMPLES
            return batch

        return __next__


def _describe_nodes(number: int, loader: Any) -> dict[str, Any]:
    """Return the fields of `schema.manifest.Loader` that are known of a pipeline of nodes."""
    return {
        "id": number,
        "dataset": type(loader.root).__name__,
        "style": "iterable",
        "batch_size": None,
        "num_workers": 0,
        "prefetch_factor": None,
        "pin_memory": False,
        "pins": False,
        "persistent_workers": False,
        "in_order": True,
        "shuffle": None,
        "length_batches": None,
        "start_method": None,
    }


SIGNAL = TorchdataSignal
