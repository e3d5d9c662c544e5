"""What an error on memory, which ended the training of a rank, tells: who asked for how much, and what held the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from collector.format.phases import read_phase

Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


@dataclass(frozen=True)
class HeldTensor:
    """A local variable of a function that was running: a tensor, or a list of `count` tensors. `bytes` is of them all,
    `shape` and `dtype` are of the first."""

    bytes: Bytes
    name: str = ""
    function: str = ""
    shape: tuple[Bytes, ...] = ()
    dtype: str = ""
    count: Bytes = 1


@dataclass(frozen=True)
class Shortage:
    """What a rank's error on memory and its traceback tell. Sizes are None and texts "" where unknown.

    `process_bytes` is the memory that the process held, `allocated_bytes` the part of it in tensors, and
    `unallocated_bytes` the part that PyTorch keeps for later. Parameters, gradients and optimizer state are those on
    `device`. `phase` is the phase of the step, and `module` the innermost module that was called.
    """

    device: str = ""
    requested_bytes: Bytes | None = None
    total_bytes: Bytes | None = None
    free_bytes: Bytes | None = None
    process_bytes: Bytes | None = None
    allocated_bytes: Bytes | None = None
    unallocated_bytes: Bytes | None = None
    place: str = ""
    function: str = ""
    module: str = ""
    phase: str = ""
    parameter_bytes: Bytes = 0
    gradient_bytes: Bytes = 0
    optimizer_bytes: Bytes = 0
    tensors: tuple[HeldTensor, ...] = ()

    @property
    def state_bytes(self) -> int:
        """Bytes that do not depend on the batch."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def rest_bytes(self) -> int:
        """Bytes of all other tensors, such as activations; 0 where that is unknown."""
        return max(0, (self.allocated_bytes or 0) - self.state_bytes) if self.parameter_bytes else 0

    @property
    def others_bytes(self) -> int:
        """Bytes that other processes hold; 0 where that is unknown."""
        if self.total_bytes is None or self.free_bytes is None or self.process_bytes is None:
            return 0
        return max(0, self.total_bytes - self.free_bytes - self.process_bytes)


def read_shortage(facts: Mapping[str, Any]) -> Shortage | None:
    """Return what the error on memory that ended a rank tells; None if no such error did, or if the fact is damaged."""
    try:
        found = msgspec.convert(facts["out_of_memory"], Shortage)
    except (KeyError, msgspec.ValidationError):
        return None
    return replace(found, phase=read_phase(found.phase))
