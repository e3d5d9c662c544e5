"""Write the sampled Python stacks of a run for other viewers: JSON of speedscope, or the gzipped protobuf of pprof."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from collector.format.phases import PHASE_LABELS
from collector.format.run import RankRun, Run
from collector.format.schema.errors import OptionError, RunError
from collector.format.words import STACK_STAGES
from collector.traces.writing import replacing
from profiler_server.analysis.selection import Numbers, parse_numbers
from profiler_server.analysis.stacks.frames import Frame, StackParser
from profiler_server.analysis.stacks.naming import cut_worker
from profiler_server.analysis.stacks.stacks import StackRow, list_samples
from profiler_server.timeline.export import choose_ranks

SPEEDSCOPE, PPROF = ".speedscope.json", ".pb.gz"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
K = TypeVar("K")


@dataclass(frozen=True)
class Sample:
    """A stack, outermost frame first, and how often it was seen. `labels` has rank, phase, loader and stage as far as
    they are known; `title` says them in words.
    """

    title: str
    labels: tuple[tuple[str, str], ...]
    stack: tuple[Frame, ...]
    count: int


def export_stacks(run: Run, path: Path, ranks: Numbers = None) -> int:
    """Write the samples of the steady steps, in the format that the path ends in. Return the number of samples.

    Raises OptionError for another ending or unknown ranks, RunError if no stack was sampled, OutputError if the file
    cannot be written; then no file is left.
    """
    if not path.name.endswith((SPEEDSCOPE, PPROF)):
        raise OptionError(f"--stacks {path} must end in {SPEEDSCOPE} (for speedscope) or {PPROF} (for pprof)")
    opened = [run.rank(rank) for rank in choose_ranks(run, parse_numbers(ranks, "ranks"))]
    samples = [sample for rank in opened for sample in _list_samples(rank)]
    if not samples:
        reason = next((said for rank in opened if (said := rank.status("stacks").reason)), "")
        raise RunError(f"{run.path} has no sampled stacks of steady steps. {reason}".strip())
    text = _write_speedscope(samples, run.path.name) if path.name.endswith(SPEEDSCOPE) else _write_pprof(samples)
    with replacing(path) as sink:
        sink.write(text)
    return sum(sample.count for sample in samples)


def _list_samples(rank: RankRun) -> Iterator[Sample]:
    parser = StackParser()
    for row, count in sorted(list_samples(rank), key=_order):
        stack = parser.parse(row.stack)
        labels = {"rank": str(rank.rank)}
        if row.is_trainer and row.phase is not None:
            labels["phase"], title = row.phase, PHASE_LABELS.get(row.phase, row.phase)
        elif not row.is_trainer and row.stage is not None:
            labels.update({"loader": str(row.loader)} if row.loader is not None else {})
            stack, _ = cut_worker(stack, row.entry or 0)
            title = (
                f"workers of loader {row.loader}, {row.stage}"
                if row.loader is not None
                else f"other threads, {row.stage}"
            )
        else:
            continue
        if row.stage is not None:
            labels["stage"] = row.stage
        yield Sample(f"rank {rank.rank}: {title}", tuple(labels.items()), stack, count)


def _order(sample: tuple[StackRow, int]) -> tuple[int, ...]:
    """Return a sort key: the training thread by phase, then workers by stage, the stacks seen most first."""
    row, count = sample
    phase = [*PHASE_LABELS, None].index(row.phase if row.phase in PHASE_LABELS else None)
    stage = [*STACK_STAGES, None].index(row.stage if row.stage in STACK_STAGES else None)
    return (1 - row.is_trainer, phase, row.loader or 0, stage, -count)


def _write_speedscope(samples: Sequence[Sample], name: str) -> bytes:
    """Return a profile for each rank and phase or stage. A frame is a function, with the line that was seen most."""
    numbers = _Numbers[tuple[str, str]]()
    lines: dict[int, Counter[int]] = {}
    labels: dict[int, str] = {}
    profiles: dict[str, dict[str, Any]] = {}
    for sample in samples:
        indexes = []
        for frame in sample.stack:
            at = numbers.find(frame.function)
            labels.setdefault(at, frame.label)
            lines.setdefault(at, Counter())[frame.line] += sample.count
            indexes.append(at)
        empty = {"type": "sampled", "name": sample.title, "unit": "none", "startValue": 0, "endValue": 0}
        profile = profiles.setdefault(sample.title, {**empty, "samples": [], "weights": []})
        profile["samples"].append(indexes)
        profile["weights"].append(sample.count)
        profile["endValue"] += sample.count
    frames = [
        {"name": labels[at], **({"file": file, "line": lines[at].most_common(1)[0][0]} if file else {})}
        for at, (_, file) in enumerate(numbers)
    ]
    found = {"$schema": _SCHEMA, "name": name, "exporter": "stepscope", "activeProfileIndex": 0}
    return json.dumps({**found, "shared": {"frames": frames}, "profiles": list(profiles.values())}).encode()


class _Numbers(dict[K, int]):
    """The number of each key, from 0 in the order in which the keys were first asked for."""

    def find(self, key: K) -> int:
        return self.setdefault(key, len(self))


def _write_pprof(samples: Sequence[Sample]) -> bytes:
    """Return the message `Profile` of pprof's profile.proto. A location is a line of a function."""
    texts, functions, places = _Numbers[str]({"": 0}), _Numbers[tuple[str, str]](), _Numbers[Frame]()
    body = [_field(1, _field(1, texts.find("samples")) + _field(2, texts.find("count")))]
    names: dict[tuple[str, str], str] = {}
    for sample in samples:
        message = b"".join(_field(1, places.find(frame) + 1) for frame in reversed(sample.stack))
        message += _field(2, sample.count)
        for key, value in sample.labels:
            message += _field(3, _field(1, texts.find(key)) + _field(2, texts.find(value)))
        body.append(_field(2, message))
    for frame, number in places.items():
        names.setdefault(frame.function, frame.label)
        line = _field(1, functions.find(frame.function) + 1) + _field(2, frame.line)
        body.append(_field(4, _field(1, number + 1) + _field(4, line)))
    for function, number in functions.items():
        spelt = _field(2, texts.find(names[function])) + _field(3, texts.find(function[0]))
        body.append(_field(5, _field(1, number + 1) + spelt + _field(4, texts.find(function[1]))))
    body += [_field(6, text.encode()) for text in texts]
    return b"".join(body)


def _field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protobuf message: a number >= 0, or a text or message."""
    if isinstance(value, int):
        return _spell(number << 3) + _spell(value)
    return _spell(number << 3 | 2) + _spell(len(value)) + value


def _spell(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
