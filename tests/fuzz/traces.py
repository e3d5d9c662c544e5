"""Mutate traces and read them: only errors of our own may come out, and memory stays bounded.

    python -m tests.fuzz.traces 10000 [--seed 1]

Real samples are taken where they are at hand, cut to a size that can be read thousands of times.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from collector.format import carried
from collector.format.schema.errors import TraceError
from collector.traces import import_trace, read_trace
from profiler_server.timeline.export import export_timeline
from tests.support.traces import SAMPLES, build_trace, training_steps, write_trace

MOST_GROWTH_MB = 400
_SAMPLE_EVENTS = 120
_ODD_VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x", True, -1, 0, 1e308, -1e308, 0.1, 1 << 31, 1 << 63, 1 << 64, "0x7", "-5", "9" * 40, "\x00",
    "ProfilerStep#1", "nccl:all_reduce", [[1]] * 3, {"a": {"b": []}}, "1e400", 1e18, 1_700_000_000_000_000, "NaN",
)  # fmt: skip
_ODD_BYTES = (
    b"NaN",
    b"Infinity",
    b"\xff\xfe",
    b"\\",
    b'"',
    b"}, {",
    b"]}",
    b"\x00",
    b",",
    b"[[[[",
    b"[" * 1500 + b"]" * 1500,
    b"5, null, ",
    b'\\"' * 2000,
    b"1e999",
    b"\xef\xbb\xbf",
)
_KEYS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "args")

Trace = dict[str, Any]
Mutation = Callable[[random.Random, bytes], bytes]


def load_seeds() -> list[bytes]:
    """Return small traces: one that is built, and pieces of the real samples that are at hand."""
    seeds = [json.dumps(build_trace(training_steps(4), baseTimeNanoseconds=1), indent=1).encode(), _export()]
    for path in sorted(SAMPLES.glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()), strict=False)
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        stride = max(len(events) // _SAMPLE_EVENTS, 1)
        rest = {key: value for key, value in trace.items() if key != "traceEvents"} if isinstance(trace, dict) else {}
        seeds.append(json.dumps({**rest, "traceEvents": events[::stride][: 2 * _SAMPLE_EVENTS]}).encode())
    return seeds


def _export() -> bytes:
    """Return what Stepscope exports: a trace that carries its tables."""
    with tempfile.TemporaryDirectory() as folder:
        run = import_trace(write_trace(Path(folder) / "t.json", training_steps(4)), Path(folder) / "run")
        return export_timeline(run, Path(folder) / "out.json").path.read_bytes()


def mutate(chance: random.Random, content: bytes) -> bytes:
    """Return the content with one to four faults, now and then packed."""
    for _ in range(chance.randint(1, 4)):
        content = chance.choice(MUTATIONS)(chance, content)
    if chance.random() < 0.1:
        content = gzip.compress(content, 1)
        if chance.random() < 0.5:
            content = _cut(chance, content)
    return content


def _cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randint(0, len(content))]


def _drop(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + content[at + chance.randint(1, 80) :]


def _insert(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + chance.choice((chance.choice(_ODD_BYTES), chance.randbytes(8))) + content[at:]


def _repeat(chance: random.Random, content: bytes) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + content[max(at - chance.randint(1, 400), 0) :]


def _flip(chance: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(min(chance.randint(1, 6), len(changed))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _distort(chance: random.Random, content: bytes) -> bytes:
    """Change values of events where the text is still JSON."""
    try:
        trace = json.loads(content)
        events = [event for event in trace["traceEvents"] if isinstance(event, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return content
    for event in chance.sample(events, min(len(events), chance.randint(1, 20))):
        place = event["args"] if chance.random() < 0.5 and isinstance(event.get("args"), dict) else event
        key = chance.choice(list(place) or list(_KEYS)) if chance.random() < 0.8 else chance.choice(_KEYS)
        place[key] = chance.choice(_ODD_VALUES)
    if chance.random() < 0.3:
        trace[chance.choice(list(trace))] = chance.choice(_ODD_VALUES)
    return json.dumps(trace).encode()


def _distort_carried(chance: random.Random, content: bytes) -> bytes:
    """Change what a file of our own carries, so that it still looks carried: the manifest, a table, its bytes."""
    end = content.find(carried.END)
    try:
        head = json.loads(content[len(carried.START) : end])
        rank = head["ranks"][chance.choice(list(head["ranks"]))]
        tables, name = rank["tables"], chance.choice(list(rank["tables"]))
        manifest = json.loads(rank["manifest"])
        faults: list[Callable[[], Any]] = [
            lambda: head.update({chance.choice(list(head)): chance.choice(_ODD_VALUES)}),
            lambda: manifest.update({chance.choice(list(manifest)): chance.choice(_ODD_VALUES)}),
            lambda: tables.update({name: tables[chance.choice(list(tables))]}),
            lambda: tables.update({name: chance.choice(_ODD_VALUES)}),
            lambda: tables.pop(name),
            lambda: tables.update({name: base64.b64encode(_flip(chance, base64.b64decode(tables[name]))).decode()}),
            lambda: head["ranks"].update({chance.choice(("1", "x", "-1")): rank}),
        ]
        chance.choice(faults)()
        rank["manifest"] = json.dumps(manifest)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return content
    return carried.START + json.dumps(head).encode() + content[end:]


MUTATIONS: tuple[Mutation, ...] = (
    *(_cut, _drop, _insert, _repeat, _flip, _distort, _distort, _distort),
    *(_distort_carried, _distort_carried),
)


def make_cases(count: int, seed: int) -> Iterator[bytes]:
    """Yield so many mutated traces, the same for the same seed."""
    chance = random.Random(seed)
    seeds = load_seeds()
    own = [seed for seed in seeds if seed.startswith(carried.START)]
    for _ in range(count):
        yield mutate(chance, chance.choice(seeds if chance.random() < 0.7 else own))


def check(path: Path) -> bool:
    """Read every table of a trace. Return whether it could be read; whatever is not our own error passes through."""
    try:
        trace = read_trace(path)
        return all(one.tables[name].num_rows >= 0 for one in (trace, *trace.beside) for name in one.tables)
    except TraceError as error:
        if "\n" in str(error) or not str(error):
            raise AssertionError(f"not one line: {error!r}") from error
        return False


def run(count: int, seed: int, keep: Path | None = None) -> int:
    """Check so many cases; a case that fails is left at `keep`. Return how many could be read."""
    readable = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        for number, content in enumerate(make_cases(count, seed)):
            path.write_bytes(content)
            try:
                readable += check(path)
            except BaseException:
                (keep or Path(f"fuzz-{seed}-{number}.json")).write_bytes(content)
                raise
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mb < MOST_GROWTH_MB, f"memory grew by {grown_mb:.0f} MB"
    return readable


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"{run(given.count, given.seed):,} of {given.count:,} could be read; the others were refused in one line")
