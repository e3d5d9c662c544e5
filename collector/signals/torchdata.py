"""Record loaders of the package torchdata, if the script has imported it: StatefulDataLoader and torchdata.nodes.

StatefulDataLoader inherits from DataLoader, so the signal `loader` sees its fetches, but its start and its workers
differ. A loader of nodes shares nothing with DataLoader; its fetches are logged here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from collector.context.hooks import bind, make_span_hook
from collector.context.loaders import count_samples
from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, uncounted, unseen
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

_DEPTH = 1
"""Depth to which samples are counted. A pipeline need not collate, so deeper items may be single samples."""
_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
_NODES = "torchdata.nodes.loader"


class TorchdataSignal(Signal):
    name = "torchdata"

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.when_imported(_STATEFUL, self._patch_stateful)
        context.when_imported(_NODES, self._patch_nodes)

    def _patch_stateful(self) -> None:
        steps = self._context.steps
        with self._context.shielded(self.name):  # another version may have other classes: the run then notes it
            loader = sys.modules[_STATEFUL].StatefulDataLoader
            self._watch_start(loader, lambda loader: steps.fetch_starts())

    def _patch_nodes(self) -> None:
        with self._context.shielded(self.name):
            module: Any = sys.modules[_NODES]
            loader, iterator = module.Loader, module.LoaderIterator
            self._watch_start(loader, self._begin_epoch)
            self._context.undo.patch(iterator, "__next__", self._make_next(iterator.__next__))

    def _watch_start(self, kind: Any, begin: Callable[[Any], None]) -> None:
        hook = make_span_hook(self._context.log, kind.__iter__, LOADER_START, LOADER_READY, begin)
        self._context.undo.patch(kind, "__iter__", hook)

    def _begin_epoch(self, loader: Any) -> None:
        loaders = self._context.loaders
        with self._context.shielded(self.name):
            if loaders.begin_epoch(loader) == 1:
                nodes = {"id": loaders.number(loader), "dataset": type(loader.root).__name__, "num_workers": 0}
                # It has no arguments of a DataLoader that advice could change.
                self._context.add_loader({**nodes, "style": "iterable", "watched": True, "prefetch_factor": None})
        self._context.steps.fetch_starts()

    def _make_next(self, original: Any) -> Any:
        log, steps, loaders = self._context.log, self._context.steps, self._context.loaders
        words, mask, following, thread, now, get_ident = bind(log)

        @uncounted
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


SIGNAL = TorchdataSignal
