"""What a program is put together from: its kind of work, and a plan of what is planted in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Size = Literal["light", "wide", "deep", "narrow"]
"""`light`: the network hardly computes and sleeps as long as an accelerator would. `wide`: large products. `deep`: many
layers with small parameters. `narrow`: few small operators."""


@dataclass(frozen=True)
class Swap:
    """One step of making a sample, written twice: `base` does the same as `fixed`, in a way that takes much longer."""

    base: str
    fixed: str


@dataclass(frozen=True)
class Work:
    """A kind of work: what is read, what is trained on it.

    Texts are parts of a program. `players` are the variables that a step uses, the network that is trained first and its
    optimizer second. `loss` computes `loss` and `output`. `step` is a whole update where one optimizer is not all.
    `item` is what a data set returns for `raw`. `sizes` are values of $width and $depth, `floats` the inputs that are real
    numbers. `slow_batch` is the number of samples for which the longer way takes some 80 ms of one core. `extra` is a term of the loss for
    `more`, the inputs of a second loader. `swaps` are by the step that they replace: load, transform or collate.
    """

    key: str
    about: tuple[str, ...]
    data: str
    batch: int
    unpack: str
    load: str
    transform: str
    item: str
    model: str
    players: Mapping[str, str]
    loss: str
    forward: str
    sizes: Mapping[Size, tuple[int, int]]
    calls: int = 1
    """How often a step calls the network: it sleeps its share of the pause in each call."""
    prepare: str = ""
    collate: str = ""
    collate_name: str = ""
    transform_name: str = "prepare_sample"
    step: str = ""
    extra_unpack: str = ""
    extra: str = ""
    swaps: Mapping[str, Swap] = field(default_factory=dict)
    floats: tuple[str, ...] = ()
    slow_batch: Mapping[str, int] = field(default_factory=dict)
    tensors: str = ""
    constants: str = ""
    feeds: tuple[str, ...] = ("map", "map", "inline", "iterable", "sharded", "pair", "generator")


@dataclass(frozen=True)
class Plan:
    """What a plant makes of a program.

    `loading` and `loading_fixed` are arguments of the DataLoader. `swap` names the step of making a sample that is written
    both ways; with `swap_both` the slow way stays in the fixed form too (it is hidden there, not mended). `reach` is a
    statement before a sample is read, such as waiting for a store. `before` and `after` are lines before the loop and
    after each update, `helpers` what they call. `optimizer` are arguments of the optimizer.
    """

    size: Size = "light"
    pause_ms: int = 0
    steps: int = 100
    epochs: int = 1
    loading: Mapping[str, object] = field(default_factory=dict)
    loading_fixed: Mapping[str, object] | None = None
    swap: str = ""
    swap_both: bool = False
    reach: str = ""
    reach_both: bool = False
    before: str = ""
    after: str = ""
    helpers: str = ""
    optimizer: str = "fused=True"
    optimizer_fixed: str = ""
    threads: str = "1"
    setup: str = ""
    worker_start: str = ""
    dtype: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    """Texts that replace those of the work: `dataset`, `loader`, `collate`, `sampler`."""


Choose = Callable[[Work, random.Random], Plan]


@dataclass(frozen=True)
class Plant:
    """A cause and how it is planted. `also` are further rules that name it rightly, `why` says in a sentence what it is.

    `works` and `feeds` are those that it can be planted in; `needs` the swap that the work must have.
    """

    cause: str
    why: str
    plan: Choose
    also: frozenset[str] = frozenset()
    feeds: tuple[str, ...] = ("map",)
    works: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    needs: str = ""
    loops: tuple[str, ...] = ()
    share: int = 2
    """How often it is drawn against others."""

    @property
    def accept(self) -> frozenset[str]:
        """The rules that name the cause rightly, none where nothing is planted."""
        return self.also | {self.cause} if self.cause else frozenset()
