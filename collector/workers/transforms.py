"""Find the transforms of a dataset, and time their calls while a batch is made.

No object of the user changes its type or identity. For an object, the `__call__` of its class is wrapped. For a plain
function, the slot that holds the function (an attribute, a list item) is replaced. `remove` restores both.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

from collector.edge import hide_frame, uncounted
from collector.workers.tally import Part, Tally, time_calls

# An attribute or a method holds transforms if its name contains one of these words. Any other callable also counts as a
# transform, unless a word of its name says that it fetches data. The exact names below hold another dataset.
_TRANSFORM_WORDS = ("transform", "augment", "preprocess", "tokeniz", "processor", "normaliz")
_READ_WORDS = ("load", "read", "open", "fetch", "get", "client", "connect", "session", "collate", "sampler", "file")
_DATASET_NAMES = ("dataset", "datasets", "_dataset", "_datasets", "ds", "base", "source_dataset")
# Methods of a library's own classes are internal: the transforms that they call are found as attributes.
_LIBRARIES = ("torch", "torchvision", "torchdata", "datasets", "builtins")
_DEPTH_LIMIT = 6
_COUNT_LIMIT = 64
_FUNCTION_TYPES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    types.MethodWrapperType,
)
_ABSENT = object()


@dataclass(frozen=True)
class Found:
    """A transform: its holder (a class, the `__dict__` of an object, a list or a dict), its key there, its name."""

    owner: Any
    key: Any
    raw: Callable[..., Any]
    name: str


class TransformTimer:
    """The transforms of a dataset, timed from `install` to `remove`; `parts` has the times since `clear`."""

    def __init__(self, dataset: Any, tally: Tally) -> None:
        self._tally = tally
        self._parts: dict[str, Part] = {}
        self._timed = [(found, self._wrap(found)) for found in find_transforms(dataset)]
        self._undo: list[tuple[Found, Callable[..., Any], Any]] = []

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self._parts.values())

    def install(self) -> None:
        if self._undo:
            return
        # All slots are chosen before any is changed, because a class may inherit its call from another class. A slot
        # that the user has changed since is left alone.
        for slot, timed in [(slot, timed) for slot, timed in self._timed if _current(slot) is slot.raw]:
            before = slot.owner.__dict__.get(slot.key, _ABSENT) if isinstance(slot.owner, type) else slot.raw
            try:
                _put(slot.owner, slot.key, timed)
            except (TypeError, AttributeError):  # a class made in C, or a sealed class: it is not timed
                continue
            self._undo.append((slot, timed, before))

    def remove(self) -> None:
        while self._undo:
            slot, timed, before = self._undo.pop()
            if _current(slot) is not timed:
                continue
            if before is _ABSENT:
                delattr(slot.owner, slot.key)
            else:
                _put(slot.owner, slot.key, before)

    def clear(self) -> None:
        for part in self._parts.values():
            part.clear()

    def _wrap(self, found: Found) -> Callable[..., Any]:
        part = self._parts.setdefault(found.name, Part(found.name))
        timed = functools.wraps(found.raw, updated=())(time_calls(found.raw, part, self._tally))
        return timed if isinstance(found.owner, type) else _StandIn(found.raw, timed)


class _StandIn:
    """A timed function in the slot of a plain function. Pickled, it becomes that plain function again."""

    def __init__(self, raw: Callable[..., Any], timed: Callable[..., Any]) -> None:
        functools.update_wrapper(self, raw, updated=())
        self._raw = raw
        self._timed = timed

    @uncounted
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._timed(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_raw"], name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _pass_on, (self._raw,)


def _pass_on(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def find_transforms(dataset: Any) -> list[Found]:
    """Return the transforms of a dataset, of the datasets inside it, and of composed transforms, outermost first.

    Depth and count are bounded. An object represents its class: other instances of the class are timed, too.
    """
    found: dict[tuple[int, Any], Found] = {}
    seen: set[int] = set()
    waiting: list[tuple[Any, int, bool]] = [(dataset, 0, True)]
    while waiting and len(found) < _COUNT_LIMIT:
        holder, depth, is_dataset = waiting.pop(0)
        if id(holder) in seen or depth > _DEPTH_LIMIT:
            continue
        seen.add(id(holder))
        here = _list_methods(type(holder)) if is_dataset else []
        for container, key, value in _list_held(holder):
            if callable(value) and not isinstance(value, type):
                here.append(_locate(container, key, value))
            waiting.append((value, depth + 1, False))
        for each in here:
            found.setdefault((id(each.owner), each.key), each)
        waiting.extend((inner, depth + 1, True) for inner in _list_datasets(holder))
    return list(found.values())


def _locate(container: Any, key: Any, value: Any) -> Found:
    if isinstance(value, _FUNCTION_TYPES):
        name = _name_function(value)
        return Found(container, key, value, f"{key} (lambda)" if name == "<lambda>" and isinstance(key, str) else name)
    cls = type(value)
    return Found(cls, "__call__", cls.__call__, _shorten(cls.__qualname__))


def _name_function(value: Any) -> str:
    if isinstance(value, functools.partial):
        return _name_function(value.func)
    return _shorten(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _shorten(name: str) -> str:
    return name.rpartition("<locals>.")[2]


def _list_methods(cls: type) -> list[Found]:
    """Return methods of a dataset's class whose names mark them as transforms, such as `def augment(self, image)`."""
    return [
        Found(base, name, value, _shorten(value.__qualname__))
        for base in cls.__mro__
        if base.__module__.partition(".")[0] not in _LIBRARIES
        for name, value in vars(base).items()
        if isinstance(value, types.FunctionType) and _is_transform_name(name) and not name.startswith(("set_", "with_"))
    ]


def _list_held(holder: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (container, key, value) for each transform of a dataset or a composed transform."""
    attributes = getattr(holder, "__dict__", None)
    if not isinstance(attributes, dict):
        return
    modules = attributes.get("_modules")
    if isinstance(modules, dict):  # transforms that are nn.Modules keep their parts in `_modules`
        yield from _list_items(modules)
    for name, value in list(attributes.items()):
        if value is None or not (_is_transform_name(name) or _acts_as_transform(name, value)):
            continue
        if isinstance(value, (MutableSequence, MutableMapping)):
            yield from _list_items(value)
        elif isinstance(value, tuple):
            # The slots of a tuple cannot be exchanged: its plain functions stay untimed, its objects do not need it.
            yield from ((attributes, name, item) for item in value if not isinstance(item, _FUNCTION_TYPES))
        else:
            yield attributes, name, value


def _acts_as_transform(name: str, value: Any) -> bool:
    """Return whether an attribute holds a callable for a sample, or a short list of such callables."""
    if name in _DATASET_NAMES or any(word in name.lower() for word in _READ_WORDS):
        return False
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= _COUNT_LIMIT and all(_is_applied(item) for item in value)
    return _is_applied(value)


def _is_applied(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and not hasattr(value, "__getitem__")


def _list_items(container: Any) -> Iterator[tuple[Any, Any, Any]]:
    pairs = container.items() if isinstance(container, MutableMapping) else enumerate(container)
    yield from ((container, key, value) for key, value in list(pairs)[:_COUNT_LIMIT])


def _list_datasets(holder: Any) -> Iterator[Any]:
    attributes = getattr(holder, "__dict__", None)
    if not isinstance(attributes, dict):
        return
    for name in _DATASET_NAMES:
        value = attributes.get(name)
        if isinstance(value, (list, tuple)):
            yield from value[:_COUNT_LIMIT]
        elif value is not None:
            yield value


def _is_transform_name(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _TRANSFORM_WORDS)


def _current(slot: Found) -> Any:
    if isinstance(slot.owner, type):
        return getattr(slot.owner, slot.key, None)
    try:
        return slot.owner[slot.key]
    except (LookupError, TypeError):
        return None


def _put(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, key, value)
    else:
        owner[key] = value
