"""The time to the first step by cause, from sampled stacks of the training thread.

A stack belongs to the cause of its innermost frame that `_OWNERS` knows; a compilation owns all that it calls. What the
process did before the recording, the recording's own start, an import of torch that was seen, and the wait for the first
batch are measured.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun, Run
from collector.format.steps import count_as_steps, read_integers, sum_recorded
from profiler_server.analysis.recorded_facts import read_source_lines, read_start
from profiler_server.analysis.stacks.frames import Frame, StackParser
from profiler_server.analysis.stacks.naming import bound_share
from profiler_server.analysis.tables import find_sound, is_text
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.steps import LATE_SAMPLE_NS
from profiler_server.facts.start_up import CAUSES, Cause, StartPart, StartUp

_COMPILES = re.compile(
    r"/torch/_dynamo/convert_frame\.py|/torch/__init__\.py compile$|/torch/_inductor/compile_fx\.py|/triton/compiler/"
    r"|/triton/runtime/autotuner\.py|/torch/jit/(_script|_trace)\.py|/torch/(_export|export)/|/torch_tensorrt/"
)
"""Frames, as file and function, that own everything below them."""
_OWNERS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        "first_batch",
        re.compile(r"/torch/utils/data/(dataloader|_utils/\w+)\.py|/multiprocessing/(popen_|process|context)"),
    ),
    (
        "setup",
        re.compile(
            r"/torch/(cuda|xpu|mps|accelerator)/|/torch/distributed/(distributed_c10d|rendezvous|device_mesh)\.py"
            r"|/torch/nn/parallel/distributed\.py|/torch/distributed/(fsdp|_composable)/|/deepspeed/"
        ),
    ),
    (
        "data",
        re.compile(
            r"/(datasets|pandas|pyarrow|polars|webdataset|h5py|lmdb|zarr|streaming|tokenizers|sentencepiece)/"
            r"|/torch/utils/data/|/torchvision/datasets/|/torchaudio/datasets/|/tokenization_\w+\.py"
            r"|/(csv|glob|pickle|tarfile|zipfile)\.py|/numpy/lib/|/os\.py walk|/pathlib\.py \S*(glob|iterdir|walk)"
        ),
    ),
    (
        "weights",
        re.compile(
            r"/torch/(nn|hub\.py|serialization\.py)|/torch/distributed/checkpoint/|/(safetensors|huggingface_hub|timm)/"
            r"|/(peft|accelerate|bitsandbytes)/|/transformers/(modeling|models/|integrations)"
            r"|(from_pretrained|load_state_dict|load_from_checkpoint|load_checkpoint)$"
        ),
    ),
)
"""The owners of frames, as file and function. The first that matches counts."""
_IN_STEP = ("compile", "imports", "setup")
"""Causes that count in steps and in an evaluation before them, too: all other work there is their own."""
_LAUNCHERS = ("/profiler-run", "/stepscope", "/stepscope/__main__.py")
_IMPORTS = re.compile(r"(import|from)\s")


@dataclass(frozen=True)
class _Sampled:
    """The samples of rows of one kind: how many have each cause, how many of these have each of the user's lines, and
    when the first was taken."""

    causes: Counter[Cause]
    places: Mapping[Cause, Counter[tuple[str, int]]]
    first_ns: int | None


@derived()
def measure_start_up(rank: RankRun) -> StartUp | None:
    """Return the time to the first step; None for an imported trace, or without a step. Raises as `RankRun.table`."""
    if rank.manifest.is_trace:
        return None
    rows = count_as_steps(rank.table("steps", ("kind", "step", "start_ns", "duration_ns", "data_wait_ns")))
    steps = np.flatnonzero(is_text(rows.every, "kind", "eval" if rows.infers else "train").to_numpy())
    if not len(steps):
        return None
    columns = ("start_ns", "duration_ns", "data_wait_ns")
    first_ns, took_ns, wait_ns = (int(read_integers(rows.every, name)[steps[0]]) for name in columns)
    begin_ns = int(rows.every["start_ns"][0].as_py())
    before, inside = _read_samples(rank, begin_ns, first_ns, first_ns + took_ns)
    exact = _measure_before(rank, begin_ns)
    exact["first_batch"] += wait_ns
    exact["unseen"] += (unseen_ns := _measure_unseen(before, begin_ns, first_ns))
    spans: list[tuple[_Sampled, int, Cause]] = [
        (before, first_ns - begin_ns - unseen_ns, "script"),
        (inside, took_ns - wait_ns, "step"),
    ]
    parts = tuple(_build_parts(exact, spans, read_source_lines(rank.manifest.facts)))
    total_ns = sum(part.duration_ns for part in parts)
    start = read_start(rank.manifest.facts)
    return StartUp(
        total_ns,
        start is not None and start.is_process,
        parts,
        before.causes.total() + inside.causes.total(),
        sum_recorded(rows.every) + exact["before"] + exact["imports"] + exact["recording"],
        rows.noun,
    )


def _measure_before(rank: RankRun, begin_ns: int) -> Counter[Cause]:
    """Return what passed before the first row of `steps`, which begins at `begin_ns`."""
    start = read_start(rank.manifest.facts)
    found: Counter[Cause] = Counter()
    if start is None:
        return found
    epoch_ns = Run(rank.run_path).manifest.epoch_unix_ns
    since, began = start.since_unix_ns - epoch_ns, start.began_unix_ns - epoch_ns
    torch = [time - epoch_ns for time in start.torch_unix_ns] or [since, since]
    if not since <= began <= begin_ns or not since <= torch[0] <= torch[-1] <= begin_ns:
        return found  # a clock was set meanwhile
    found["imports"] = torch[-1] - torch[0]
    found["before"] = began - since - _overlap(torch, since, began)
    found["recording"] = begin_ns - began - _overlap(torch, began, begin_ns)
    return found


def _overlap(span: Sequence[int], low: int, high: int) -> int:
    return max(min(span[-1], high) - max(span[0], low), 0)


def _measure_unseen(sampled: _Sampled, begin_ns: int, end_ns: int) -> int:
    """Return the time from `begin_ns` to the first sample before `end_ns`; 0 if that is short."""
    late_ns = min(sampled.first_ns if sampled.first_ns is not None else end_ns, end_ns) - begin_ns
    return late_ns if late_ns > LATE_SAMPLE_NS else 0


def _read_samples(rank: RankRun, begin_ns: int, first_ns: int, end_ns: int) -> tuple[_Sampled, _Sampled]:
    """Return the samples before the first step and those in it, without its wait for the batch."""
    columns = ("replica", "kind", "phase", "start_ns", "duration_ns", "samples", "stack")
    rows = find_sound(rank, "stacks", columns, (pc.field("start_ns") >= begin_ns) & (pc.field("start_ns") < end_ns))
    # Equal stacks in steps that end soon after one another share a row.
    is_inside = pa.array(rows["start_ns"].to_numpy() + rows["duration_ns"].to_numpy() // 2 < end_ns)
    rows = rows.filter(pc.and_(is_inside, pc.and_(pc.equal(rows["replica"], -1), pc.is_valid(rows["stack"]))))
    is_before, waits = pc.less(rows["start_ns"], first_ns), is_text(rows, "phase", "data_wait")
    inside = rows.filter(pc.and_(pc.invert(is_before), pc.invert(waits)))
    return _count(rank, rows.filter(is_before), "script"), _count(rank, inside, "step")


def _count(rank: RankRun, rows: pa.Table, rest: Cause) -> _Sampled:
    """Count samples by cause; those without a cause count as `rest`."""
    causes: Counter[Cause] = Counter()
    places: dict[Cause, Counter[tuple[str, int]]] = {}
    parser, texts = StackParser(), read_source_lines(rank.manifest.facts)
    sets = frozenset(loader.dataset.rpartition(".")[2] for loader in rank.manifest.loaders)
    columns = (rows[name].to_pylist() for name in ("kind", "stack", "samples"))
    for kind, text, samples in zip(*columns, strict=True):
        stack = parser.parse(text)
        own = next((frame for frame in reversed(stack) if not frame.package and frame.file.endswith(".py")), None)
        # An import also finds files and runs the functions of packages that import their modules late.
        is_import = own is not None and _IMPORTS.match(texts.get(own.file, {}).get(own.line, ""))
        cause = "imports" if is_import else find_cause(stack, sets)
        if cause is None or (kind != "startup" and cause not in _IN_STEP):
            cause = rest
        causes[cause] += samples
        if own is not None:
            places.setdefault(cause, Counter())[own.file, own.line] += samples
    return _Sampled(causes, places, pc.min(rows["start_ns"]).as_py())


def find_cause(stack: Sequence[Frame], data_sets: frozenset[str] = frozenset()) -> Cause | None:
    """Return the cause that owns a stack, outermost frame first; None for the script's own work.

    `data_sets` are names of classes of data sets, all of whose functions belong to the data.
    """
    names = [f"{frame.file} {frame.name}" for frame in stack]
    # The modules of a compiler are imported where nothing is compiled, too: by optimizers, for example.
    if any(_COMPILES.search(name) for name in names if not name.endswith(" <module>")):
        return "compile"
    main = next(
        (at for at, frame in enumerate(stack) if frame.name == "<module>" and not frame.file.endswith(_LAUNCHERS)),
        len(stack),
    )
    for at in reversed(range(len(stack))):
        if stack[at].name == "<module>":
            return "imports" if at > main else None
        if stack[at].name.partition(".")[0] in data_sets:
            return "data"
        found = next((cause for cause, owns in _OWNERS if owns.search(names[at])), None)
        if found is not None:
            return found
    return None


def _build_parts(
    exact: Counter[Cause],
    spans: Sequence[tuple[_Sampled, int, Cause]],
    texts: Mapping[str, Mapping[int, str]],
) -> Iterator[StartPart]:
    """Yield the parts that took time. Each of `spans` has samples, the time that they divide, and the cause of all of
    it if there are none."""
    bounds: dict[Cause, list[int]] = {cause: [exact[cause]] * 3 for cause in CAUSES}
    places: dict[Cause, Counter[tuple[str, int]]] = {}
    for sampled, whole_ns, rest in spans:
        counts = sampled.causes or Counter({rest: 1})
        left_ns, left = whole_ns, counts.total()
        for cause, samples in counts.items():
            took_ns = round(left_ns * samples / left)
            left_ns, left = left_ns - took_ns, left - samples
            low, high = bound_share(samples, counts.total()) if len(counts) > 1 else (1.0, 1.0)
            for at, value in enumerate((took_ns, low * whole_ns, high * whole_ns)):
                bounds[cause][at] += round(value)
        for cause, found in sampled.places.items():
            places.setdefault(cause, Counter()).update(found)
    for cause, (took_ns, low_ns, high_ns) in bounds.items():
        if took_ns > 0:
            most = places.get(cause, Counter()).most_common(1)
            file, line = most[0][0] if most else ("", 0)
            place = f"{file.rpartition('/')[2]}:{line}" if file else ""
            yield StartPart(cause, took_ns, low_ns, high_ns, place, texts.get(file, {}).get(line, ""))
