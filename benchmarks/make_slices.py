"""Make a run with a given number of slices: a transformer's training step on an imaginary GPU, repeated with jitter.

    python benchmarks/make_slices.py OUTPUT_DIR --slices 5_000_000 [--ranks 1]

Every rank has two host threads with nested operators, three streams, launches from host to device, and 210 names. Some
names are as long as those of real kernels.
"""

from __future__ import annotations

import argparse
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.schema import layout
from collector.format.schema.manifest import Device, RankManifest, RunManifest, Signal, encode_manifest
from collector.format.stored_files import arrow_schema

STEP_NS = 250_000_000
STEPS_PER_CHUNK = 40
MAIN, AUTOGRAD, COMPUTE, COLLECTIVE, COPY = range(5)
TRACKS = (
    ("thread", "thread 4242 (main)", None),
    ("thread", "thread 4271 (autograd)", None),
    ("stream", "stream 7", 7),
    ("stream", "stream 20 (NCCL)", 20),
    ("stream", "stream 21 (copies)", 21),
)
OPERATORS = [
    "aten::linear",
    "aten::addmm",
    "aten::mm",
    "aten::matmul",
    "aten::bmm",
    "aten::add",
    "aten::mul",
    "aten::copy_",
    "aten::to",
    "aten::_to_copy",
    "aten::layer_norm",
    "aten::native_layer_norm",
    "aten::gelu",
    "aten::dropout",
    "aten::view",
    "aten::transpose",
    "aten::softmax",
    "aten::cat",
    "aten::scaled_dot_product_attention",
    "aten::_flash_attention_forward",
    "aten::silu",
    "aten::pow",
    "aten::mean",
    "aten::rsqrt",
]
GEMMS = [
    f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{a}x{b}_32x{c}_{layout_}_align8>(T1::Params)"
    for a in (64, 128, 256)
    for b in (64, 128)
    for c in (3, 4, 5)
    for layout_ in ("nn", "nt", "tn")
]
ELEMENTWISE = [
    f"void at::native::vectorized_elementwise_kernel<{n}, at::native::{f}, std::array<char*, {n}ul>>(int, at::native::{f}, std::array<char*, {n}ul>)"
    for f in ("CUDAFunctor_add<c10::BFloat16>", "BinaryFunctor<float, float, float, MulFunctor<float>>", "gelu_kernel")
    for n in (1, 2, 4, 8)
]


@dataclass
class Template:
    """One step as rows. The last value of a row is the row that launched it, -1 for none."""

    rows: list[tuple[int, int, int, int, str, str, int]]

    def put(self, track: int, depth: int, start: int, length: int, named: tuple[str, str], launcher: int = -1) -> int:
        self.rows.append((track, depth, start, length, *named, launcher))
        return len(self.rows) - 1


def build_template(seed: int = 7) -> Template:
    """Return the slices of one step of 250 ms."""
    rng = np.random.default_rng(seed)
    made = Template([])
    device_at = 12_000_000

    def run_operators(track: int, depth: int, start: int, total: int, calls: int) -> None:
        nonlocal device_at
        each = total // calls
        for call in range(calls):
            at, length = start + call * each, int(each * 0.9)
            name = OPERATORS[int(rng.integers(len(OPERATORS)))]
            made.put(track, depth, at, length, (name, "operator"))
            made.put(track, depth + 1, at + length // 12, length * 5 // 6, (name.replace("::", "::_"), "operator"))
            launch = made.put(track, depth + 2, at + length // 2, length // 4, ("cudaLaunchKernel", "runtime"))
            kernels = GEMMS if rng.random() < 0.4 else ELEMENTWISE
            kernel = kernels[int(rng.integers(len(kernels)))]
            device_at = max(device_at, at + length)
            device_ns = int(rng.lognormal(10.0, 0.9)) + 1500
            made.put(COMPUTE, 0, device_at, device_ns, (kernel, "kernel"), launch)
            device_at += device_ns + int(rng.integers(800, 2600))

    made.put(
        MAIN, 0, 100_000, 9_000_000, ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "annotation")
    )
    copy = made.put(MAIN, 0, 9_200_000, 1_000_000, ("cudaMemcpyAsync", "runtime"))
    made.put(COPY, 0, 9_400_000, 700_000, ("Memcpy HtoD (Pinned -> Device)", "memcpy"), copy)
    made.put(MAIN, 0, 10_500_000, 90_000_000, ("nn.Module: GPT_0", "module"))
    for layer in range(24):
        at = 10_600_000 + layer * 3_720_000
        made.put(MAIN, 1, at, 3_650_000, (f"nn.Module: Block_{layer}", "module"))
        run_operators(MAIN, 2, at + 30_000, 3_500_000, 30)
    made.put(MAIN, 0, 101_000_000, 105_000_000, ("Tensor.backward", "annotation"))
    for layer in range(24):
        for call in range(28):
            at = 102_000_000 + (layer * 28 + call) * 152_000
            name = f"autograd::engine::evaluate_function: {('Addmm', 'Mm', 'Gelu', 'View')[call % 4]}Backward0"
            made.put(AUTOGRAD, 0, at, 146_000, (name, "operator"))
            run_operators(AUTOGRAD, 1, at + 8_000, 126_000, 2)
        collective = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        made.put(COLLECTIVE, 0, 108_000_000 + layer * 4_300_000, 3_500_000, (collective, "communication"))
    made.put(MAIN, 0, 207_000_000, 30_000_000, ("Optimizer.step#AdamW.step", "annotation"))
    run_operators(MAIN, 1, 207_100_000, 29_500_000, 60)
    return made


def write_slices(path: Path, template: Template, slices: int, seed: int) -> npt.NDArray[np.int64]:
    """Write the table `slices`. Return the start of every step and the end of the last, in ns."""
    rng = np.random.default_rng(seed)
    track, depth, start, length = (np.array(column, np.int64) for column in list(zip(*template.rows, strict=True))[:4])
    scale = STEP_NS / max(int((start + length).max()) + 100_000, STEP_NS)
    steps = max(1, round(slices / start.size))
    starts = np.concatenate(([0], np.cumsum(STEP_NS * (0.95 + rng.gamma(2.0, 0.03, steps))))).astype(np.int64)
    names = sorted({row[4] for row in template.rows})
    categories = sorted({row[5] for row in template.rows})
    args = [
        "{}",
        *(f'{{"grid":[{64 * n},1,1],"block":[{128},1,1],"registers per thread":{32 + n}}}' for n in range(120)),
    ]
    fixed = {
        "name": np.array([names.index(row[4]) for row in template.rows], np.int32),
        "category": np.array([categories.index(row[5]) for row in template.rows], np.int32),
        "launcher": np.array([row[6] for row in template.rows], np.int64),
    }
    schema = arrow_schema("slices")
    first = 0
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as writer:
        for step in range(0, steps, STEPS_PER_CHUNK):
            numbers = np.arange(step, min(step + STEPS_PER_CHUNK, steps))
            count = start.size * numbers.size
            at = (starts[numbers][:, None] + (start * scale * 0.95).astype(np.int64)).ravel()
            # Shorter than the template, never longer: lanes stay free of overlaps and children inside their parents.
            jitter = np.where(track >= COMPUTE, rng.uniform(0.5, 1.0, (numbers.size, 1)), 1.0)
            long = np.maximum((length * scale * 0.95 * jitter), 200).astype(np.int64).ravel()
            order = np.lexsort((np.tile(depth, numbers.size), at))
            place = np.empty(count, np.int64)
            place[order] = np.arange(count)
            launcher = np.tile(fixed["launcher"], numbers.size)
            base = np.repeat(np.arange(numbers.size) * start.size, start.size)
            launched_by = np.where(launcher >= 0, first + place[base + launcher], -1)[order]
            tiled = {name: np.tile(fixed[name], numbers.size)[order] for name in ("name", "category")}
            of_track = np.tile(track, numbers.size)[order]
            columns: dict[str, Any] = {
                "id": np.arange(first, first + count),
                "track": of_track,
                "depth": np.tile(depth, numbers.size)[order],
                "start_ns": at[order],
                "duration_ns": long[order],
                "name": pa.DictionaryArray.from_arrays(tiled["name"], names),
                "category": pa.DictionaryArray.from_arrays(tiled["category"], categories),
                "step": np.repeat(numbers + 1, start.size)[order],
                "launched_by": pa.array(launched_by, mask=launched_by < 0),
                "args": pa.DictionaryArray.from_arrays(
                    np.where(of_track >= COMPUTE, tiled["name"] % len(args), 0).astype(np.int32), args
                ),
            }
            writer.write_table(parts.build_table("slices", columns), row_group_size=1 << 17)
            first += count
    return starts


def write_rest(folder: Path, starts: npt.NDArray[np.int64]) -> None:
    """Write the tables `steps`, `phases` and `tracks`."""
    shares = dict(zip(PHASE_NAMES, (0.0, 0.036, 0.006, 0.36, 0.42, 0.0, 0.12, 0.0), strict=True))
    begin, whole = starts[:-1], np.diff(starts)
    phases = {name: (whole * share).astype(np.int64) for name, share in shares.items()}
    phases["tail"] = whole - sum(phases.values())
    number = np.arange(1, begin.size + 1)
    zero = np.zeros(begin.size, np.int64)
    counts = ("fetches", "forwards", "backwards", "optimizer_steps", "skipped_updates", "loader_start_ns", "gc_ns")
    steps: dict[str, Any] = {
        "index": number - 1,
        "step": number,
        "kind": ["train"] * begin.size,
        "start_ns": begin,
        "duration_ns": whole,
        **{f"{name}_ns": values for name, values in phases.items()},
        **dict.fromkeys(counts, zero),
        "detailed": np.ones(begin.size, bool),
        "markers": np.zeros(begin.size, bool),
    }
    parts.write_table(parts.build_table("steps", steps), layout.table_file(folder, "steps"))
    lengths = np.stack([phases[name] for name in PHASE_NAMES], axis=1)
    at = begin[:, None] + np.cumsum(lengths, axis=1) - lengths
    kept = lengths.ravel() > 0
    rows: dict[str, Any] = {
        "step": np.repeat(number, len(PHASE_NAMES))[kept],
        "index": np.repeat(number - 1, len(PHASE_NAMES))[kept],
        "phase": np.tile(np.array(PHASE_NAMES), begin.size)[kept].tolist(),
        "start_ns": at.ravel()[kept],
        "duration_ns": lengths.ravel()[kept],
    }
    parts.write_table(parts.build_table("phases", rows), layout.table_file(folder, "phases"))
    tracks = [
        {
            "track": i,
            "kind": kind,
            "name": name,
            "process": "python 4242" if stream is None else "GPU 0",
            "order": i,
            "unit": "",
            "stream": stream,
        }
        for i, (kind, name, stream) in enumerate(TRACKS)
    ]
    parts.write_table(parts.build_table_from_rows("tracks", tracks), layout.table_file(folder, "tracks"))


def make_run(path: Path, slices: int, ranks: int) -> None:
    """Write a run with `slices` slices, spread over its ranks."""
    template = build_template()
    now = time.time_ns()
    host = socket.gethostname()
    for rank in range(ranks):
        folder = layout.rank_path(path, rank)
        folder.mkdir(parents=True, exist_ok=True)
        starts = write_slices(layout.table_file(folder, "slices"), template, slices // ranks, rank)
        write_rest(folder, starts)
        manifest = RankManifest(
            rank, host, 1, "imported", now, now, devices=(Device(0, "synthetic"),), signals=(Signal("window", "on"),)
        )
        layout.rank_file(path, rank).write_text(encode_manifest(manifest), encoding="utf-8")
    run = RunManifest(path.name, path.name, now, now, "kineto", ranks, host)
    layout.run_file(path).write_text(encode_manifest(run), encoding="utf-8")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("output", type=Path)
    reader.add_argument("--slices", type=lambda text: int(text.replace("_", "")), default=5_000_000)
    reader.add_argument("--ranks", type=int, default=1)
    given = reader.parse_args()
    began = time.perf_counter()
    make_run(given.output, given.slices, given.ranks)
    size = sum(p.stat().st_size for p in given.output.rglob("*.parquet"))
    print(f"{given.slices:,} slices on {given.ranks} ranks: {size / 1e6:.0f} MB in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
