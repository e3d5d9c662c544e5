"""Traces: Kineto's and our own exports as JSON, packets of Perfetto, operations of a job as Parquet, dumps of the Flight Recorder, a status of NCCL.

Real samples are cut to a size that can be read thousands of times.
"""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from collector.format import carried
from collector.format.schema.errors import TraceError
from collector.traces.importing import import_trace
from collector.traces.reading import read_trace
from profiler_server.timeline.export import export_timeline
from tests.fuzz.frame import Case, HarmError
from tests.fuzz.mutations import ODD_VALUES, Mutation, cut, drop, flip, insert, repeat, spoil_bytes, spoil_json
from tests.fuzz.tables import mutate_table
from tests.support.dumps import make_dump, make_entry
from tests.support.packets import ON_GPU, Converter
from tests.support.pieces import KeptPool, tell
from tests.support.status import make_communicator, make_missing, make_rank, make_status
from tests.support.traces import CARRIED as SAMPLES_CARRIED
from tests.support.traces import build_trace, training_steps, write_trace

JOB = SAMPLES_CARRIED.parent / "pipeline_job.parquet"
_SAMPLE_EVENTS = 120
_KEYS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "args")

Trace = dict[str, Any]


def load_seeds() -> list[bytes]:
    """Return small traces: one that is built, and pieces of the real samples that are carried."""
    seeds = [json.dumps(build_trace(training_steps(4), baseTimeNanoseconds=1), indent=1).encode(), _export()]
    for path in sorted(SAMPLES_CARRIED.glob("*.json.gz")):
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
            content = cut(chance, content)
    return content


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
        place[key] = chance.choice(ODD_VALUES)
    if chance.random() < 0.3:
        trace[chance.choice(list(trace))] = chance.choice(ODD_VALUES)
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
            lambda: head.update({chance.choice(list(head)): chance.choice(ODD_VALUES)}),
            lambda: manifest.update({chance.choice(list(manifest)): chance.choice(ODD_VALUES)}),
            lambda: tables.update({name: tables[chance.choice(list(tables))]}),
            lambda: tables.update({name: chance.choice(ODD_VALUES)}),
            lambda: tables.pop(name),
            lambda: tables.update({name: base64.b64encode(flip(chance, base64.b64decode(tables[name]))).decode()}),
            lambda: head["ranks"].update({chance.choice(("1", "x", "-1")): rank}),
        ]
        chance.choice(faults)()
        rank["manifest"] = json.dumps(manifest)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return content
    return carried.START + json.dumps(head).encode() + content[end:]


MUTATIONS: tuple[Mutation, ...] = (
    *(cut, drop, insert, repeat, flip, _distort, _distort, _distort),
    *(_distort_carried, _distort_carried),
)


def _pack(trace: Trace) -> bytes:
    """Return a trace as packets in the layout of torch: its GPU's work apart."""
    made = Converter(trace)
    on_gpu = [event for event in made.slices if event.get("cat") in ON_GPU]
    made.write_afterwards([event for event in made.slices if event not in on_gpu])
    made.write_stages(on_gpu)
    made.write_instants()
    content: bytes = made.writer.trace.SerializeToString()
    return content


def _distort_packets(chance: random.Random, content: bytes) -> bytes:
    """Change fields of packets, their order and their number, so that they are still packets."""
    trace = protos.Trace.FromString(content)
    packets = list(trace.packet)
    for _ in range(chance.randint(1, 12)):
        packet = chance.choice(packets)
        number = chance.choice((0, 1, 5, 6, 64, 100, 101, 1 << 31, 1 << 62, (1 << 64) - 1))
        place: list[Any] = [packet, *(value for field, value in packet.ListFields() if field.message_type)]
        fields = [
            (message, field)
            for message in place
            if hasattr(message, "DESCRIPTOR")
            for field in message.DESCRIPTOR.fields
            if field.cpp_type == field.CPPTYPE_UINT64 and not field.is_repeated
        ]
        message, field = chance.choice(fields)
        setattr(message, field.name, number)
        packet.sequence_flags = chance.choice((0, 1, 2))
    if chance.random() < 0.3:
        at = chance.randrange(len(packets))
        packets = packets[at:] + packets[: chance.randrange(len(packets))]
    made: bytes = protos.Trace(packet=packets).SerializeToString()
    return made


def _make_seeds() -> dict[str, list[bytes]]:
    traces = load_seeds()
    dump = make_dump([make_entry(number) for number in range(1, 6)])
    return {
        "t.json": traces,
        "own.json": [trace for trace in traces if trace.startswith(carried.START)],
        "t.pftrace": [_pack(json.loads(trace)) for trace in traces if not trace.startswith((b"[", carried.START))],
        "job.parquet": [JOB.read_bytes()],
        "trace_rank_0": [pickle.dumps(dump, protocol=2), pickle.dumps(dump, protocol=4)],
        "trace_rank_1.json": [json.dumps(dump).encode()],
        "ras.json": [
            json.dumps(make_status(make_communicator([make_rank(0), make_rank(1)], make_missing(2)))).encode()
        ],
    }


class Traces:
    """Imports a file; what is refused leaves nothing behind."""

    name = "traces"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seeds = _make_seeds()
        self._job = pq.read_table(JOB)
        self._pool = KeptPool(1)

    def make(self, chance: random.Random) -> Case:
        name = chance.choice(("t.json", "t.json", "t.json", "own.json", "own.json", *self._seeds))
        seed = chance.choice(self._seeds[name])
        if name == "job.parquet" and chance.random() < 0.7:
            return Case(name, mutate_table(chance, self._job))
        if name == "t.pftrace" and chance.random() < 0.7:
            return Case(name, _distort_packets(chance, seed))
        if name in ("trace_rank_1.json", "ras.json"):
            return Case(name, spoil_json(chance, seed))
        if name in ("job.parquet", "trace_rank_0", "t.pftrace"):
            return Case(name, spoil_bytes(chance, seed))
        return Case(name, mutate(chance, seed))

    def check(self, case: Case) -> bool:
        path = self._folder / case.place
        path.write_bytes(case.content)
        try:
            how = (self._import, self._compare, check, check)[len(case.content) % 4]
            return how(path)
        finally:
            path.unlink()

    def _import(self, path: Path) -> bool:
        target = self._folder / "run"
        try:
            run = import_trace(path, target)
            sys.stdout.flush()
            assert all(
                run.rank(rank).table("steps").num_rows >= 0 for rank in run.ranks if run.rank(rank).count_rows("steps")
            )
            return True
        except TraceError as error:
            _check_line(error)
            if target.exists():
                raise HarmError("a refused trace leaves a run") from None
            return False
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _compare(self, path: Path) -> bool:
        """Read a file in pieces, by one process and by two."""
        told = tell(path, None)
        if tell(path, self._pool) != told:
            raise HarmError("two processes read something else than one")
        return not isinstance(told, str)

    def verify(self) -> None:
        left = [path.name for path in self._folder.iterdir()]
        if left:
            raise HarmError(f"left behind: {left[:5]}")

    def close(self) -> None:
        self._pool.close()


def check(path: Path) -> bool:
    """Read every table of a trace. Return whether it could be read; whatever is not our own error passes through."""
    try:
        trace = read_trace(path)
        return all(one.tables[name].num_rows >= 0 for one in (trace, *trace.beside) for name in one.tables)
    except TraceError as error:
        _check_line(error)
        return False


def _check_line(error: TraceError) -> None:
    if "\n" in str(error) or not str(error):
        raise HarmError(f"not one line: {error!r}") from error


KIND = Traces
