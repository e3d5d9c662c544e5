"""Iterables that a script watches: what the training waits for when its input is no DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from collector.edge import hide_frame
from collector.format.schema.errors import UsageError
from collector.marks import outlet as outlets

T = TypeVar("T")
_DATA_LOADERS = ("torch.utils.data.dataloader", "torchdata.nodes.loader")


class Watched(Generic[T]):
    """An iterable as it was, whose iterators are timed; everything else is the iterable's own."""

    def __init__(self, iterable: Iterable[T], name: str) -> None:
        self._iterable = iterable
        self._name = name

    def __iter__(self) -> Iterator[T]:
        outlet = outlets.current
        trainer = None if outlet is None or not outlet.is_training_thread else outlet.trainer
        try:
            if trainer is None or _is_seen_anyway(self._iterable):
                return iter(self._iterable)
            return trainer.iterate(self._iterable, self._name)
        except BaseException as error:
            hide_frame(error)
            raise

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterable, name)


def watch(iterable: Iterable[T], name: str = "") -> Watched[T]:
    """Watch the input of a training that is no DataLoader: the time until each item comes is data wait.

    Yields the same items. A generator, an iterator or any iterable will do; `name` is what the pages call it, by
    default the name of the generator's function or of the class. Iterate it on the thread that trains, begun while the
    run is recorded. A DataLoader is seen without it, and so is one that the iterable fetches from on that thread.
    UsageError for what cannot be iterated or a name that is no text.

    >>> for batch in collector.watch(read_batches()):
    ...     train(batch)
    """
    if not isinstance(name, str):
        raise UsageError(f"watch() takes the name of the input as text, not {name!r}")
    if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
        raise UsageError(f"watch() takes something to iterate over, not {type(iterable).__name__}")
    return Watched(iterable, name or str(getattr(iterable, "__qualname__", type(iterable).__qualname__)))


def _is_seen_anyway(iterable: object) -> bool:
    return any(kind.__module__ in _DATA_LOADERS for kind in type(iterable).__mro__)
