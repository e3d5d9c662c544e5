"""How a job may end before its scripts are through: a closed set of types, each with what is known of it and no more."""

from __future__ import annotations

from dataclasses import dataclass

from collector.hangs.blame import Stop
from collector.hangs.live import Standing
from profiler_server.analysis.ranks.held import Hang


@dataclass(frozen=True)
class Collective:
    """A collective as a rank entered it."""

    name: str
    bytes: int | None
    dtype: str


@dataclass(frozen=True)
class Meeting:
    """A place in the sequence of collectives of a group: its `number` counts from 1, None where not all are listed.

    `group` is empty where the job has one group only. `entered` are the ranks that were in `call` there.
    """

    number: int | None
    group: str
    step: int
    call: Collective
    entered: tuple[int, ...]


@dataclass(frozen=True)
class LeftOut:
    """`ranks` have gone past a collective that others entered; `then` are the ranks that a signal ended, with its number."""

    ranks: tuple[int, ...]
    meeting: Meeting
    then: tuple[Death, ...]


@dataclass(frozen=True)
class Mismatch:
    """`ranks` called another collective than the others where all must call the same."""

    ranks: tuple[int, ...]
    called: Collective
    meeting: Meeting
    then: tuple[Death, ...]


@dataclass(frozen=True)
class Raised:
    """An exception of a script; `ranks` had it, none are told of a job of one process, and `lost` others only lost their
    connection. `steps` had ended on the first."""

    ranks: tuple[int, ...]
    error: str
    steps: int
    lost: int


@dataclass(frozen=True)
class Death:
    """A process that ended without an exception of Python: by a signal or an exit code, where the recorder saw it."""

    rank: int
    signal: int | None
    exit_code: int | None


@dataclass(frozen=True)
class Killed:
    """The first process that died; `lost` others lost their connection to it, `ended` were ended after it."""

    death: Death
    steps: int
    lost: int
    ended: int


@dataclass(frozen=True)
class CutOff:
    """`ranks` died, and nothing says which was the first; none are told of a job of one process. `signal` is what ended them
    all, None where that was not seen."""

    ranks: tuple[int, ...]
    signal: int | None
    steps: int


@dataclass(frozen=True)
class Severed:
    """Ranks whose communication failed first; none left an error of its own."""

    ranks: tuple[int, ...]
    error: str
    steps: int


End = Hang | Standing | LeftOut | Mismatch | Raised | Killed | Stop | CutOff | Severed
