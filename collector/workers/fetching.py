"""Time the making of each batch: its samples, its transforms, its collate.

A fetcher of torch reads the samples and collates them. Its `dataset` (or `dataset_iter`) is replaced only during
batches whose parts are timed. Objects that the user holds, such as `get_worker_info().dataset`, are never changed.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.edge import hide_frame, uncounted, unseen
from collector.ring.stage_log import BATCH, PART, Batch, StageLog
from collector.ring.stage_log import Part as PartRecord
from collector.workers.files import OpenCounter, ReadCounter
from collector.workers.tally import BATCH_COST_NS, UNKNOWN, Guard, Rhythm, Tally
from collector.workers.transforms import TransformTimer


@dataclass(frozen=True)
class Place:
    """A batch: its loader, its epoch from 1, its number from 0.

    `asked_ns` is the time when the wait for the batch's index began. `picked_ns` is the time when the index arrived.
    """

    loader: int
    epoch: int
    batch: int
    asked_ns: int
    picked_ns: int


class FetchProbe:
    """A timer of one fetcher's batches, on one thread: `begin` before a fetch, `end` and `write` after it."""

    def __init__(self, fetcher: Any, dataset: Any, log: StageLog, rhythm: Rhythm | None = None) -> None:
        self._log = log
        self._tally = Tally()
        self.rhythm = rhythm or Rhythm()
        self._transforms = TransformTimer(dataset, self._tally)
        self._reads = ReadCounter()
        self._opens = OpenCounter()
        self._seat = _find_seat(fetcher, self._tally)
        # A weak reference: the fetcher holds this object, and must end with its iterator, as it would without
        # Stepscope.
        self._fetcher: Any = weakref.proxy(fetcher)
        self._collate = fetcher.collate_fn
        self._timed = False
        self._clear()

    def begin(self, samples: int, timed: bool) -> None:
        """Prepare for a batch of about `samples` samples. Its samples and transforms are timed only if `timed`."""
        self._clear()
        self._samples = samples
        self._timed = timed
        self._fetcher.collate_fn = self._run_collate
        if self._timed:
            self._tally.clear()
            self._transforms.clear()
            self._transforms.install()
            self._seat.take()
            self._opens.start()
            self._reads.start()
        else:
            self.leave()
        self._cpu_start_ns = thread_time_ns()

    def end(self) -> None:
        self._done_ns = perf_counter_ns()
        self._cpu_ns = thread_time_ns() - self._cpu_start_ns

    def write(self, place: Place) -> None:
        cpu_ns, done_ns = self._cpu_ns, self._done_ns
        work_end_ns = self._collate_start_ns or done_ns
        work_ns = work_end_ns - place.picked_ns
        work_cpu_ns = cpu_ns - self._collate_cpu_ns
        tally = self._tally
        calls = self._write_parts(place) if self._timed else 0
        if self._timed:
            read_ns = tally.item_ns - self._nested_before_collate_ns
            read_cpu_ns = work_cpu_ns - self._nested_cpu_before_collate_ns
            self.rhythm.learn(work_ns, self._samples, calls)
        else:
            read_ns, read_cpu_ns = work_ns, work_cpu_ns
        self._log.add(
            BATCH,
            Batch(
                place.loader, place.epoch, place.batch, place.asked_ns, place.picked_ns, done_ns,
                int(self._timed), max(read_ns, 0), max(read_cpu_ns, 0), self._collate_ns, self._collate_cpu_ns,
                self._samples,
                tally.longest_ns if self._timed and self._seat.per_sample else UNKNOWN,
                tally.longest_item if self._timed else UNKNOWN,
                self._reads.stop() if self._timed else UNKNOWN,
                self._opens.packed if self._timed else 0,
            ),
        )  # fmt: skip

    def leave(self) -> None:
        self._transforms.remove()
        self._seat.leave()
        self._opens.stop()

    def leave_all(self) -> None:
        """Restore the dataset, the transforms and the fetcher."""
        self.leave()
        if self._fetcher.collate_fn == self._run_collate:
            self._fetcher.collate_fn = self._collate

    def detach(self) -> None:
        self._reads.close()
        self.leave_all()

    def _clear(self) -> None:
        self._collate_start_ns = self._collate_ns = self._collate_cpu_ns = 0
        self._nested_before_collate_ns = self._nested_cpu_before_collate_ns = 0

    def _write_parts(self, place: Place) -> int:
        calls = 0
        for part in self._transforms.parts:
            if part.calls:
                calls += part.calls
                self._log.add(
                    PART,
                    PartRecord(
                        place.loader, place.epoch, place.batch, self._log.name(part.name),
                        part.duration_ns, part.cpu_ns, part.calls, part.longest_ns, part.longest_item,
                    ),
                )  # fmt: skip
        return calls

    @uncounted
    def _run_collate(self, samples: Any) -> Any:
        tally = self._tally
        if isinstance(samples, list) and self._fetcher.auto_collation:
            self._samples = len(samples)
        nested_ns, nested_cpu_ns = tally.nested_ns, tally.nested_cpu_ns
        self._nested_before_collate_ns, self._nested_cpu_before_collate_ns = nested_ns, nested_cpu_ns
        cpu_start_ns = thread_time_ns()
        self._collate_start_ns = start_ns = perf_counter_ns()
        try:
            with unseen:
                return self._collate(samples)
        finally:
            # A transform that collate calls is a transform's time, not collate's.
            inside_ns, inside_cpu_ns = tally.nested_ns - nested_ns, tally.nested_cpu_ns - nested_cpu_ns
            if not self._timed:
                inside_ns = inside_cpu_ns = 0
            self._collate_ns = perf_counter_ns() - start_ns - inside_ns
            self._collate_cpu_ns = thread_time_ns() - cpu_start_ns - inside_cpu_ns


class FetchHere:
    """A replacement for `fetch` of one fetcher in the training process (`num_workers=0`), with the clocks of a worker.

    The clocks cost more than a small batch, so most small batches are not timed. The word log has their duration, and
    the sidecar divides it by the shares of the timed batches. Outside of a batch the user's objects are unchanged.
    `thread` holds the id of the training thread, because only fetches on this thread are in the word log.
    """

    __slots__ = (
        "__weakref__",
        "_batch",
        "_fetch",
        "_fetcher",
        "_guard",
        "_pid",
        "_place",
        "_probe",
        "_rhythm",
        "_thread",
    )

    def __init__(self, fetcher: Any, log: StageLog, place: tuple[int, int], thread: Sequence[int]) -> None:
        # Weakly: the fetcher holds this, and must die when its iterator does, as it would without us.
        self._fetcher = weakref.ref(fetcher)
        self._fetch = type(fetcher).fetch
        self._rhythm = Rhythm(BATCH_COST_NS)
        self._probe = probe = FetchProbe(fetcher, fetcher.dataset, log, self._rhythm)
        self._guard = Guard("the DataLoader in the process that trains", lambda _: probe.detach())
        self._thread = thread
        self._place = place
        self._batch = 0
        self._pid = os.getpid()
        fetcher.fetch = self._watched_fetch

    def detach(self) -> None:
        fetcher = self._fetcher()
        if fetcher is not None:
            with contextlib.suppress(ReferenceError):  # its iterator has just gone
                self._probe.detach()
            if vars(fetcher).get("fetch") == self._watched_fetch:
                del fetcher.fetch

    @uncounted
    def _watched_fetch(self, index: Any) -> Any:
        rhythm = self._rhythm
        try:
            # `rhythm.is_due()` is written out for the usual batch: another function would have to come into the caches.
            if not rhythm.left or self._thread[0] != get_ident():
                return self._timed_fetch(index, rhythm.is_due())
            rhythm.left -= 1
            self._batch += 1
            return self._fetch(self._fetcher(), index)
        except BaseException as error:
            hide_frame(error)
            raise

    @uncounted
    def _timed_fetch(self, index: Any, timed: bool) -> Any:
        fetcher = self._fetcher()
        # A child that was forked from here must not write into its parent's log.
        if os.getpid() != self._pid:
            with unseen:
                return self._fetch(fetcher, index)
        run, probe = self._guard.run, self._probe
        run(probe.begin, len(index) if hasattr(index, "__len__") else 1, timed)
        picked_ns = perf_counter_ns()
        try:
            with unseen:
                batch = self._fetch(fetcher, index)
        finally:
            run(probe.end)
            run(probe.leave_all)
        run(probe.write, Place(*self._place, self._batch, picked_ns, picked_ns))
        self._batch += 1
        return batch


class _Seat:
    """The attribute of a fetcher from which samples come. `take` puts a timed replacement there, `leave` the user's
    object. `per_sample` is False if a call reads all samples of a batch at once.
    """

    def __init__(self, fetcher: Any, name: str, timed: Any, per_sample: bool) -> None:
        self._fetcher = weakref.proxy(fetcher)
        self._name = name
        self._raw = getattr(fetcher, name)
        self._timed = timed
        self.per_sample = per_sample

    def take(self) -> None:
        setattr(self._fetcher, self._name, self._timed)

    def leave(self) -> None:
        setattr(self._fetcher, self._name, self._raw)


def _find_seat(fetcher: Any, tally: Tally) -> _Seat:
    if hasattr(fetcher, "dataset_iter"):
        return _Seat(fetcher, "dataset_iter", _TimedIterator(fetcher.dataset_iter, tally), True)
    dataset = fetcher.dataset
    at_once = getattr(dataset, "__getitems__", None)
    if at_once and not _reads_one_by_one(dataset):
        return _Seat(fetcher, "dataset", _TimedBatches(dataset, tally), False)
    return _Seat(fetcher, "dataset", _TimedItems(dataset, tally), True)


def _reads_one_by_one(dataset: Any) -> bool:
    """Return whether samples can be timed one by one: `__getitems__`, if any, only forwards to single reads."""
    kind = type(dataset)
    return (
        (kind.__module__, kind.__qualname__) == ("torch.utils.data.dataset", "Subset")
        and not callable(getattr(dataset.dataset, "__getitems__", None))
    )  # fmt: skip


class _Timed:
    __slots__ = ("_source", "_tally")

    def __init__(self, source: Any, tally: Tally) -> None:
        self._source = source
        self._tally = tally


class _TimedItems(_Timed):
    """A replacement for a dataset that is read by index, with timed reads.

    Like the fetcher, it ignores a `__getitem__` among the dataset's instance attributes.
    """

    __slots__ = ()

    @uncounted
    def __getitem__(self, index: Any) -> Any:
        tally = self._tally
        tally.item = index if isinstance(index, int) else UNKNOWN
        start_ns = perf_counter_ns()
        try:
            return self._source[index]
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            tally.add_item(perf_counter_ns() - start_ns)


class _TimedBatches(_Timed):
    __slots__ = ()

    @uncounted
    def __getitems__(self, indices: Any) -> Any:
        start_ns = perf_counter_ns()
        try:
            return self._source.__getitems__(indices)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            self._tally.add_item(perf_counter_ns() - start_ns)


class _TimedIterator(_Timed):
    __slots__ = ()

    def __iter__(self) -> _TimedIterator:
        return self

    @uncounted
    def __next__(self) -> Any:
        start_ns = perf_counter_ns()
        try:
            return next(self._source)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            self._tally.add_item(perf_counter_ns() - start_ns)
