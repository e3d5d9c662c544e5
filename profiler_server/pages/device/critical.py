"""What is on the critical path: the mean step, by what it waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector.format.run import RankRun
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.derive.derived import NotReady
from profiler_server.format import format_duration, format_number_of, format_shares, shorten_middle
from profiler_server.pages.device.part import Part

LABELS: Mapping[str, str] = {
    "compute": "Computing",
    "communication": "Communication",
    "copy": "Copies",
    "launch": "Launching",
    "sync": "Synchronising",
    "operator": "Operators on the host",
    "python": "Python",
    "loading": "Loading data",
    "unknown": "Not known",
}
COLORS: Mapping[str, str] = {
    "compute": "compute",
    "communication": "communication",
    "copy": "copy",
    "launch": "overlap",
    "sync": "zero",
    "operator": "host",
    "python": "optimizer",
    "loading": "data",
    "unknown": "idle",
}
MEANING: Mapping[str, str] = {
    "compute": "kernels that the next work waits for",
    "communication": "collectives that the next work waits for",
    "copy": "copies that the next work waits for",
    "launch": "calls of the device's runtime, and the way from them to the device and from kernel to kernel",
    "sync": "calls that return after the work that they waited for has ended",
    "operator": "operators on the host, outside of such calls",
    "python": "the host outside of operators",
    "loading": "the host waits for the DataLoader",
    "unknown": "work that begins later than anything that is known explains",
}
_NAME_LENGTH = 60


@dataclass(frozen=True)
class CriticalTable:
    """`total` is the mean step, which the parts sum to; `sentence` says which steps there are."""

    sentence: str
    total: str
    parts: tuple[Part, ...]


def build_critical(rank: RankRun) -> CriticalTable | NotReady | None:
    """Build the table; None where no launch is linked to its work. Raises as `RankRun.table` does."""
    path = find_critical_path.peek(rank)
    if path is None or isinstance(path, NotReady):
        return path
    sums = path.sum_kinds()
    total = sum(sums.values())
    if not total:
        return None
    present = [kind for kind, length in sums.items() if length]
    shares = format_shares([sums[kind] / total for kind in present])
    parts = tuple(
        Part(
            LABELS[kind],
            COLORS[kind],
            format_duration(sums[kind] / path.steps),
            share,
            sums[kind] / total,
            _describe(kind, path.examples.get(kind, ())),
        )
        for kind, share in zip(present, shares, strict=True)
    )
    last = f"the last {format_number_of(path.steps, 'step')}" if path.left_out else format_number_of(path.steps, "step")
    return CriticalTable(f"Mean of {last}.", format_duration(total / path.steps), parts)


def _describe(kind: str, examples: tuple[str, ...]) -> str:
    names = ", ".join(shorten_middle(name, _NAME_LENGTH) for name in examples)
    return f"{MEANING[kind]}: {names}" if names and kind != "unknown" else MEANING[kind]
