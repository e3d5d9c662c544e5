"""How long the sampler takes to choose the samples of a batch: it runs on the training thread, inside of `next()`.

A stand-in for the iterator over the sampler times the first calls and then every seventh, which costs 0.2 µs a call. The
sums are a fact of the run, saved now and then. Iterators of other libraries keep the sampler's state and are left alone.
"""

from __future__ import annotations

import functools
import logging
from time import perf_counter_ns
from typing import Any

from torch.utils.data import IterableDataset
from torch.utils.data import dataloader as module

from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, log_failure, unseen

MOST_SAMPLERS = 32
TIMED_FIRST = 64
"""So many batches of an epoch are all timed."""
PERIOD = 7
"""Then every so many-th: a prime, so that what comes every eighth time is not always missed."""


class SamplerSums:
    """What the sampler of one loader took, in the calls that were timed.

    Its first call of an epoch may shuffle all of the data, so it is counted apart.
    """

    __slots__ = ("batches", "epochs", "first_ns", "kind", "longest_ns", "rest_ns")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.epochs = self.batches = self.first_ns = self.rest_ns = self.longest_ns = 0

    def describe(self, loader: int) -> dict[str, Any]:
        """Return what the fact `samplers` holds of a loader: `rest_ns` is of `batches` after the first of each epoch,
        `longest_ns` of one of them."""
        return {"loader": loader, **{name: getattr(self, name) for name in self.__slots__}}


class TimedSampler:
    """An iterator that adds the time of each call to the sums."""

    __slots__ = ("_advance", "_calls", "_left", "_sums")

    def __init__(self, iterator: Any, sums: SamplerSums) -> None:
        self._advance = iterator.__next__
        self._sums = sums
        self._calls = 0
        self._left = 0

    def __iter__(self) -> TimedSampler:
        return self

    def __next__(self) -> Any:
        try:
            if left := self._left:
                self._left = left - 1
                return self._advance()
            return self._time()
        except BaseException as error:
            hide_frame(error)
            raise

    def _time(self) -> Any:
        before = perf_counter_ns()
        try:
            index = self._advance()
        except BaseException as error:
            hide_frame(error)
            raise
        took_ns, sums = perf_counter_ns() - before, self._sums
        if self._calls:
            sums.rest_ns += took_ns
            sums.batches += 1
            if took_ns > sums.longest_ns:
                sums.longest_ns = took_ns
        else:
            sums.first_ns += took_ns
            sums.epochs += 1
        self._calls += 1
        if self._calls > TIMED_FIRST:
            self._left = PERIOD - 1
        return index


class SamplerSignal(Signal):
    name = "sampler"
    option = "data_pipeline"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._sums: dict[int, SamplerSums] = {}
        self._kinds = (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter)
        iterator = module._BaseDataLoaderIter
        context.undo.patch(iterator, "__init__", self._make_hook(iterator.__init__))
        context.undo.patch(iterator, "_reset", self._make_hook(iterator._reset))
        context.save_now_and_then(self.name, self._save)

    def _save(self) -> None:
        if self._sums:
            self._context.add_fact("samplers", [sums.describe(loader) for loader, sums in self._sums.items()])

    def _make_hook(self, original: Any) -> Any:
        @functools.wraps(original)
        def hook(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                original(iterator, loader, *args, **kwargs)
            with log_failure("the sampler of a loader is not timed", level=logging.DEBUG):
                self._watch(iterator, loader)

        return hook

    def _watch(self, iterator: Any, loader: Any) -> None:
        if type(iterator) not in self._kinds or isinstance(loader.dataset, IterableDataset):
            return
        sampler = getattr(iterator, "_sampler_iter", None)
        if sampler is None or type(sampler) is TimedSampler:
            return
        number = self._context.loaders.number(loader)
        if number not in self._sums and len(self._sums) >= MOST_SAMPLERS:
            return
        sums = self._sums.setdefault(number, SamplerSums(_name_sampler(loader)))
        iterator._sampler_iter = TimedSampler(sampler, sums)


def _name_sampler(loader: Any) -> str:
    """Return the class that chooses: the batch sampler where it is the user's own, else the sampler."""
    batches = loader.batch_sampler
    own = batches is not None and type(batches).__module__ != "torch.utils.data.sampler"
    return type(batches if own else loader.sampler).__name__


SIGNAL = SamplerSignal
