"""What is tried: kinds of job, ways to end, loads, doors. A new one is a line here, a kind also a script in jobs/."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

JOBS = Path(__file__).parent / "jobs"
STEPS = 12
"""The step after which a job ends."""

Door = Literal["bare", "run", "script"]
"""Recorded by `stepscope run`, by a `Profiler` in the script, or not at all."""
Load = Literal["idle", "busy"]
LOADS: tuple[Load, ...] = ("idle", "busy")
"""busy: a loop for each core and one more."""

Trait = Literal["ranks", "loop", "group", "records", "several", "fails"]
"""ranks: there is more than one. loop: its model takes a batch of its loader. group: it makes and leaves the process
group itself. records: windows open in it. several: other processes train than the one that is started. fails: its
first attempt does, and chance decides what its other ranks print then."""


@dataclass(frozen=True)
class Kind:
    """A kind of job: its script, the words that start it, and what it has. `{ranks}` stands for their number."""

    name: str
    script: str
    traits: frozenset[Trait]
    doors: tuple[Door, ...] = ("run", "script")
    launcher: tuple[str, ...] = ()
    says: str = ""


@dataclass(frozen=True)
class Stroke:
    """A signal from outside, so long after the last step or the stroke before: to the process started, or to its group."""

    signal: str
    after_s: float = 0.2
    to_group: bool = True


@dataclass(frozen=True)
class Way:
    """A way to end: what the job is told, or what is sent to it. `needs` are the traits of kinds that can end so.

    `victim` is the rank that ends so, None for the last one. `window` are the first step and the number of steps of the
    window that is recorded; with `orders`, one far ahead is asked for by control.json before the first stroke. `is_racy`:
    which lines other ranks or torch print is chance.
    """

    name: str
    inside: str = "return"
    needs: frozenset[Trait] = frozenset()
    victim: int | None = 0
    strokes: tuple[Stroke, ...] = ()
    window: tuple[int, int] | None = None
    orders: bool = False
    is_racy: bool = False
    says: str = ""

    @property
    def is_outside(self) -> bool:
        return bool(self.strokes)


_RANKS: frozenset[Trait] = frozenset({"ranks", "loop", "group", "records", "several"})
_PLAIN: frozenset[Trait] = frozenset({"loop", "records"})
_TORCHRUN = ("torchrun", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
_LAUNCHED = (*_TORCHRUN, "--nproc-per-node={ranks}")
_ACCELERATE = (
    "accelerate",
    "launch",
    "--cpu",
    "--num_processes=1",
    "--num_machines=1",
    "--mixed_precision=no",
    "--dynamo_backend=no",
)

KINDS = (
    Kind("plain", "plain.py", _PLAIN, says="a loop in the main thread"),
    Kind("workers", "loader_workers.py", _PLAIN, says="two workers make its batches"),
    Kind("ddp", "ddp.py", _RANKS, launcher=_LAUNCHED, says="DDP below torchrun"),
    Kind(
        "ddp-tutorial",
        "ddp_tutorial.py",
        _RANKS - {"loop"},
        launcher=_LAUNCHED,
        says="the same with a slow rank and a backward written in Python",
    ),
    Kind(
        "ddp-cycles",
        "ddp_cycles.py",
        frozenset({"ranks", "records", "several"}),
        launcher=_LAUNCHED,
        says="ten process groups one after the other; bare too, PyTorch's own race ends some of these jobs never",
    ),
    Kind("fsdp2", "fsdp2.py", _RANKS - {"loop"}, launcher=_LAUNCHED, says="fully_shard below torchrun"),
    Kind("spawned-ranks", "spawned_ranks.py", _RANKS, says="DDP below torch.multiprocessing.spawn"),
    Kind(
        "restarts",
        "restarts.py",
        _RANKS | {"fails"},
        launcher=(*_LAUNCHED, "--max-restarts=1"),
        says="DDP whose first attempt fails, and which torchrun starts again",
    ),
    Kind("lightning", "with_lightning.py", frozenset({"records"}), says="a Trainer of Lightning"),
    Kind("trainer", "with_trainer.py", frozenset({"records"}), says="a Trainer of Hugging Face"),
    Kind(
        "accelerate",
        "with_accelerate.py",
        frozenset({"several", "records"}),
        launcher=_ACCELERATE,
        says="accelerate launch, which makes one process without a GPU",
    ),
    Kind("threads", "in_threads.py", frozenset({"records", "loop"}), says="two threads train, the main thread waits"),
    Kind("daemon", "in_daemon.py", frozenset({"records"}), says="a daemon thread trains while the main thread ends"),
    Kind("subinterpreter", "subinterpreter.py", frozenset(), says="a Profiler in an interpreter beside the main one"),
    Kind("fork", "forked.py", frozenset({"several", "records"}), says="a training forks, the child trains on"),
    Kind("spawn", "spawned.py", frozenset({"several", "records"}), says="multiprocessing spawns the training"),
    Kind(
        "notebook",
        "notebook.py",
        frozenset({"several", "records"}),
        doors=("script",),
        says="cells in an interactive interpreter that is restarted as Jupyter does",
    ),
)

_INT, _GROUP = "SIGINT", frozenset[Trait]({"ranks", "group"})
_OPEN, _WRITTEN = (STEPS - 1, 5), (STEPS - 2, 3)
_WINDOWS: frozenset[Trait] = frozenset({"records"})

WAYS = (
    Way("return", says="main() returns; the model is freed behind the group"),
    Way("exception", "exception", is_racy=True, says="on rank 0"),
    Way("rank exception", "exception", frozenset({"ranks"}), None, is_racy=True, says="on the last rank"),
    Way("thread exception", "thread exception", says="in a thread beside the training"),
    Way("out of memory", "out of memory", is_racy=True, says="on rank 0; the error of the allocator of the host"),
    Way("sys.exit", "exit", is_racy=True),
    Way("os._exit", "_exit", is_racy=True),
    Way("Ctrl-C", strokes=(Stroke(_INT),), is_racy=True),
    Way("Ctrl-C twice", strokes=(Stroke(_INT), Stroke(_INT, 0.3)), is_racy=True, says="0.3 s later"),
    Way("SIGTERM", strokes=(Stroke("SIGTERM", to_group=False),), is_racy=True, says="to the process that was started"),
    Way("SIGHUP", strokes=(Stroke("SIGHUP"),), is_racy=True, says="as a terminal sends it that is closed"),
    Way("SIGKILL", "kill", victim=None, is_racy=True, says="of the last rank"),
    Way("collective aborted", "collective abort", _GROUP, None, is_racy=True, says="while the others wait in it"),
    Way("collective failed", "collective exception", _GROUP, None, is_racy=True, says="an exception instead of it"),
    Way("collective skipped", "collective skip", _GROUP, None, is_racy=True, says="by the last rank"),
    Way("window ordered", needs=_WINDOWS, window=(STEPS * 100, 5), says="far ahead"),
    Way(
        "window ordered, Ctrl-C",
        needs=_WINDOWS,
        orders=True,
        strokes=(Stroke(_INT, 0.8),),
        is_racy=True,
        says="far ahead, by control.json",
    ),
    Way("window open", needs=_WINDOWS, window=_OPEN),
    Way("window open, exception", "exception", _WINDOWS, window=_OPEN, is_racy=True),
    Way("window open, Ctrl-C", needs=_WINDOWS, window=_OPEN, strokes=(Stroke(_INT),), is_racy=True),
    Way(
        "window open, SIGTERM",
        needs=_WINDOWS,
        window=(STEPS, 500),
        strokes=(Stroke("SIGTERM", to_group=False),),
        is_racy=True,
    ),
    Way("window being written", needs=_WINDOWS, window=_WRITTEN),
    Way("window being written, sys.exit", "exit", _WINDOWS, window=_WRITTEN, is_racy=True),
    Way("in evaluation", "evaluation", frozenset({"loop"}), says="main() returns while its loader is read"),
    Way("exception in evaluation", "evaluation exception", frozenset({"loop"}), is_racy=True),
    Way("model first", "model first", frozenset({"group", "loop"}), says="the model is freed before the group"),
    Way("group kept", "group kept", _GROUP, says="nobody destroys the group"),
)


_Named = TypeVar("_Named", Kind, Way)


@dataclass(frozen=True)
class Cell:
    """One combination. `ranks` is 1 for a kind without."""

    kind: Kind
    way: Way
    load: Load
    door: Door
    ranks: int = 1

    @property
    def name(self) -> str:
        many = f"@{self.ranks}" if self.ranks > 1 else ""
        return f"{self.kind.name}{many} / {self.way.name} / {self.load} / {self.door}"

    @property
    def is_racy(self) -> bool:
        """Whether only what the job itself prints can be compared, and what it fails with."""
        many = bool(self.kind.traits & {"ranks", "several"})
        return self.way.is_outside or "fails" in self.kind.traits or (self.way.is_racy and many)


@dataclass(frozen=True)
class Choice:
    """Which cells; an empty tuple stands for all."""

    kinds: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    doors: tuple[str, ...] = ()
    ranks: tuple[int, ...] = field(default=(2,))


def list_cells(choice: Choice) -> Iterator[Cell]:
    """Yield the possible combinations of what is chosen."""
    for kind in _pick(KINDS, choice.kinds):
        for way in _pick(WAYS, choice.ways):
            if not way.needs <= kind.traits:
                continue
            for ranks in choice.ranks if "ranks" in kind.traits else (1,):
                for load in LOADS:
                    for door in kind.doors:
                        if _takes(choice.loads, load) and _takes(choice.doors, door):
                            yield Cell(kind, way, load, door, ranks)


def _pick(declared: tuple[_Named, ...], names: tuple[str, ...]) -> Iterator[_Named]:
    return (one for one in declared if _takes(names, one.name))


def _takes(chosen: tuple[str, ...], name: str) -> bool:
    return not chosen or name in chosen
