"""Batches that were fetched before the step that trains on them. Their samples count in that step.

A loop that reads ahead fetches one batch before the first step of an epoch and the next batch in each step. The last
step of the epoch fetches none, and trains on the remaining batch. A loop may instead skip several batches at the start
of the epoch; only the end of the epoch shows which of the two happened. So a single early batch is used by the next
step, but several early batches wait for steps without a fetch. Either way each batch counts once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collector.sidecar.steps.rows import Fetch, Row

Ints = npt.NDArray[np.int64]


class Batch(NamedTuple):
    loader: int
    epoch: int
    samples: int


Ahead = tuple[Batch, ...]


def push_early(ahead: Ahead, fetches: list[Fetch]) -> Ahead:
    """Return the unused batches, extended by the batches of `fetches`, which no step uses yet.

    If the loader already has unused batches of this epoch, its new batches are not added, because the loop has skipped
    them.
    """
    newest = {fetch.loader: fetch.epoch for fetch in fetches}
    kept = tuple(batch for batch in ahead if batch.epoch == newest.get(batch.loader, batch.epoch))
    taken = {batch.loader for batch in kept}
    return kept + tuple(_hold(fetch) for fetch in fetches if fetch.loader not in taken)


def drop_unused(ahead: Ahead, loader: int) -> Ahead:
    """Return the unused batches, after a loader's epoch has ended outside of a step.

    Several batches of the loader are dropped, because the loop has skipped them. A single batch stays: the next step
    may use it and fetch the first batch of the next epoch.
    """
    if sum(batch.loader == loader for batch in ahead) <= 1:
        return ahead
    return tuple(batch for batch in ahead if batch.loader != loader)


def use_batches(ahead: Ahead, row: Row, trains: bool, usual: dict[int, int]) -> tuple[Ahead, int]:
    """Return the batches that stay unused after a row (a step or an evaluation batch), and the number of samples that
    the row used. `trains` is True for a step.

    A row uses as many batches as it fetches. The first row of a group of batches that were fetched together uses as
    many as it has backwards per update. A row without a fetch, or at the end of an epoch, uses as many batches as the
    row before. `usual` maps each loader to the last such number, and is updated.
    """
    fetched: dict[int, list[Batch]] = {}
    for fetch in row.fetches:
        fetched.setdefault(fetch.loader, []).append(_hold(fetch))
    ending = row.stopped if row.counters.stops else None
    loaders = dict.fromkeys(fetched)
    if ending is not None:
        loaders[ending] = None
    if trains and not fetched:
        loaders |= dict.fromkeys(batch.loader for batch in ahead)
    rest, samples = [batch for batch in ahead if batch.loader not in loaders], 0
    for loader in loaders:
        own = fetched.get(loader, [])
        waiting = _queue_up([batch for batch in ahead if batch.loader == loader], own)
        count = len(own)
        if row.grouped and own:
            # This step used the rest of the previous group. That rest must count in some step.
            count = usual[loader] = max(row.counters.backwards // max(row.counters.updates, 1), 1)
            count += len(waiting) - len(own)
        elif not own or loader == ending:
            count = max(count, usual.get(loader, 1))
        else:
            usual[loader] = count
        samples += sum(batch.samples for batch in waiting[:count])
        rest += waiting[count:]
    return tuple(rest), samples


def shift_samples(ahead: Ahead, loaders: Ints, epochs: Ints, samples: Ints) -> tuple[Ahead, Ints]:
    """Return the batches that stay unused after several steps with one fetch each, and the number of samples that each
    step used. The arrays describe the fetched batches, one per step.
    """
    used, rest = samples.copy(), [batch for batch in ahead if batch.loader not in loaders]
    for loader in {batch.loader for batch in ahead} & set(loaders.tolist()):
        rows = np.flatnonzero(loaders == loader)
        own = zip(epochs[rows].tolist(), samples[rows].tolist(), strict=True)
        early = [batch for batch in ahead if batch.loader == loader]
        waiting = _queue_up(early, [Batch(loader, *pair) for pair in own])
        used[rows] = [batch.samples for batch in waiting[: len(rows)]]
        rest += waiting[len(rows) :]
    return tuple(rest), used


def _queue_up(early: list[Batch], own: list[Batch]) -> list[Batch]:
    return early + own if len(early) == 1 else own + early


def _hold(fetch: Fetch) -> Batch:
    return Batch(fetch.loader, fetch.epoch, fetch.samples)
