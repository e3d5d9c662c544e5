"""What a kind of input is, and how many cases of it are checked: within which memory and time."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

MOST_MEMORY_MB = 600
MOST_CPU_S = 10.0
"""Of one input: processor time, so that a busy machine changes nothing."""
VERIFIED_EVERY = 100
CORPUS = Path(__file__).parent / "corpus"
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """One input. `place` says which of the kind's files it is and in which form it lies there."""

    place: str
    content: bytes

    def encode(self) -> bytes:
        return self.place.encode() + b"\n" + self.content

    @staticmethod
    def decode(raw: bytes) -> Case:
        place, _, content = raw.partition(b"\n")
        return Case(place.decode(), content)


class Kind(Protocol):
    """Checks cases in a folder of its own."""

    name: str

    def make(self, chance: random.Random) -> Case:
        """Make a mutated input."""

    def check(self, case: Case) -> bool:
        """Say whether an input is accepted, or refused as the product declares. Whatever else happens is raised."""

    def verify(self) -> None:
        """Raise if anything but what the cases change is not as it was."""

    def close(self) -> None: ...


class HarmError(AssertionError):
    """The product did what it must not, without an exception."""


@dataclass(frozen=True)
class Failure:
    """`signature` is the same for the same fault."""

    signature: str
    text: str
    case: Case


@dataclass
class Tally:
    accepted: int = 0
    refused: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.accepted + self.refused + len(self.failures)


def make_cases(kind: Kind, count: int, seed: int, first: int = 0) -> Iterator[Case]:
    """Yield cases, each the same for the same seed and number."""
    for number in range(first, first + count):
        yield kind.make(random.Random(f"{seed}-{number}"))


def run_cases(kind: Kind, cases: Iterable[Case], on_case: Callable[[Case, Tally], None] | None = None) -> Tally:
    """Check cases. A failure is noted, and the next case follows. `on_case` is called before each."""
    tally = Tally()
    for case in cases:
        if on_case is not None:
            on_case(case, tally)
        try:
            if check_case(kind, case):
                tally.accepted += 1
            else:
                tally.refused += 1
            if tally.count % VERIFIED_EVERY == 0:
                kind.verify()
        except Exception as error:  # noqa: BLE001  whatever it is, it is what is looked for
            tally.failures.append(describe_failure(error, case))
    kind.verify()
    return tally


def check_case(kind: Kind, case: Case) -> bool:
    """Check one case within its limits."""
    _forget_peak()
    started_s = time.process_time()
    accepted = kind.check(case)
    taken_s = time.process_time() - started_s
    if taken_s > MOST_CPU_S:
        raise HarmError(f"it takes {taken_s:.0f} s")
    if (peak_mb := read_peak_mb()) > MOST_MEMORY_MB:
        raise HarmError(f"it takes {peak_mb:.0f} MB of memory")
    return accepted


def describe_failure(error: BaseException, case: Case) -> Failure:
    """Name a failure by its kind and the innermost line of the product that it passed."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_ROOT)
        and "/tests/" not in frame.filename
        and ".venv" not in frame.filename
    ]
    where = f"{Path(frames[-1].filename).relative_to(_ROOT)}:{frames[-1].lineno}" if frames else str(error)[:150]
    text = "".join(traceback.format_exception(error))
    return Failure(f"{type(error).__name__} at {where}", text, case)


def read_corpus(kind: str) -> dict[str, Case]:
    """Return the inputs that once broke something, by name."""
    return {path.name: Case.decode(path.read_bytes()) for path in sorted((CORPUS / kind).glob("*"))}


def _forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # then the peak is that of all cases so far


def read_peak_mb() -> float:
    """Return the most memory that this process held since the peak was forgotten."""
    text = Path("/proc/self/status").read_text("ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024
