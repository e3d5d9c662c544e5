"""The ways in which a job ends early or hangs: a closed set of types, each with exactly the facts known then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from collector.hangs.blame import Stop
from collector.hangs.live import Standing
from profiler_server.analysis.ranks.shortage import Shortage

Cause = Literal["missing", "mismatch", "network", "no_dump", "overwritten", "pair", "behind", "lost", "failed"]


@dataclass(frozen=True)
class Call:
    """A collective that one rank entered. `place` is the line outside of torch that made the call, such as `train.py:88
    in step`; "" if unknown.
    """

    name: str
    bytes: int | None
    shapes: str
    dtype: str
    place: str
    is_completed: bool


@dataclass(frozen=True)
class Hang:
    """The first collective of a group that did not end; for the causes `behind`, `lost` and `failed`, the communicator
    that hangs.

    `group` is PyTorch's name of the group, `label` its description, and `sequence` the number of the collective in the
    group. `missing` are ranks that never entered the collective; `waiting` are the ranks inside. `last` maps a missing
    rank to its last earlier call and the number of this call, if known. For a `pair`, a send or receive, `last` is the
    call of the rank that waits longest. `differing` describes the calls of the ranks whose call does not match. For a
    hang from NCCL's status, `told` is the whole sentence, and ranks are numbered within the communicator."""

    group: str
    label: str
    sequence: int
    name: str
    bytes: int | None
    cause: Cause
    missing: tuple[int, ...]
    waiting: tuple[int, ...]
    last: Mapping[int, tuple[int, Call]]
    differing: Mapping[int, str]
    told: str = ""

    @property
    def title(self) -> str:
        return "Ranks of a communicator are apart" if self.cause == "behind" else "The job hangs"


@dataclass(frozen=True)
class Collective:
    """A collective with the properties that must be the same on all ranks. `bytes` is None and `dtype` "" where ranks
    may differ.
    """

    name: str
    bytes: int | None
    dtype: str


@dataclass(frozen=True)
class Meeting:
    """A position in the sequence of collectives of a group. `number` counts from 1; it is None if not all calls are
    recorded.

    `group` is empty if the job has only one group. `entered` are the ranks that were in `call` at this position.
    """

    number: int | None
    group: str
    step: int
    call: Collective
    entered: tuple[int, ...]


@dataclass(frozen=True)
class LeftOut:
    """The end of a job in which `ranks` skipped the collective of `meeting`, which other ranks entered. `then` are
    processes that a signal ended afterwards."""

    ranks: tuple[int, ...]
    meeting: Meeting
    then: tuple[Death, ...] = ()


@dataclass(frozen=True)
class Mismatch:
    """The end of a job in which `ranks` called `called`, where the other ranks made the call of `meeting`. All ranks
    must make the same call. `then` is as in `LeftOut`."""

    ranks: tuple[int, ...]
    called: Collective
    meeting: Meeting
    then: tuple[Death, ...] = ()


@dataclass(frozen=True)
class Raised:
    """The end of a job by an exception of a script, whose text is `error`.

    `ranks` are those that raised it; empty for a job of one process. `lost` is the number of other ranks that only
    lost their connection. `steps` is the number of finished steps on the rank that raised first.
    """

    ranks: tuple[int, ...]
    error: str
    steps: int
    lost: int


@dataclass(frozen=True)
class OutOfMemory(Raised):
    """The end of a job by an error on memory. `shortage` is of the rank `rank`, which raised first; it is None in a job
    of one process."""

    rank: int | None
    shortage: Shortage


@dataclass(frozen=True)
class Death:
    """A process that ended without a Python exception. Its signal or exit code is known if the recorder saw it."""

    rank: int
    signal: int | None
    exit_code: int | None


@dataclass(frozen=True)
class Killed:
    """The end of a job by the death of one process, the first that died, after `steps` finished steps of its rank.

    `lost` is the number of ranks that lost their connection. `ended` is the number of processes that ended later.
    """

    death: Death
    steps: int
    lost: int
    ended: int


@dataclass(frozen=True)
class CutOff:
    """The end of a job in which `ranks` died, and which of them died first is unknown; `ranks` is empty for a job of
    one process.

    `signal` ended all of them; None if unknown. `steps` is the number of finished steps of one of them.
    """

    ranks: tuple[int, ...]
    signal: int | None
    steps: int


@dataclass(frozen=True)
class Severed:
    """The end of a job in which the communication of `ranks` failed, while no rank had an error of its own.

    `error` and `steps` are those of the rank that failed first.
    """

    ranks: tuple[int, ...]
    error: str
    steps: int


End = Hang | Standing | LeftOut | Mismatch | Raised | Killed | Stop | CutOff | Severed
