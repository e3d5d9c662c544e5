"""Rows for runs of several ranks and for the Memory and resources page, added to a run of `build_run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Device, encode_manifest
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_run, build_steps

Row = dict[str, Any]
MIB = 1 << 20
H100 = Device(0, "NVIDIA H100", memory_bytes=80 << 30, multiprocessors=132)


def build_ranks(path: Path, ranks: int = 4, slow: int | None = None, steps: int = 60) -> Path:
    """Write a run whose rank `slow` waits 12 ms more for data per step, and whose others are held for it."""
    plan = RunPlan(ranks=ranks, steps=steps, phases_ms={**HEALTHY_STEP_MS, "communication": 4.0})
    build_run(path, plan)
    for rank in range(ranks):
        rows = build_steps(plan)
        if slow is not None:
            for row in rows:
                row["data_wait_ns" if rank == slow else "communication_ns"] += 12 * MS
        lay_end_to_end(rows)
        folder = layout.rank_path(path, rank)
        write_rows(folder, "steps", rows)
        write_rows(folder, "collectives", build_collectives(rows, late=slow is None or rank == slow))
    return path


def build_edited(path: Path, plan: RunPlan, edit: Callable[[int, list[Row]], object]) -> Path:
    """Write a run whose ranks have the steps of the plan, as `edit` leaves those of each rank."""
    build_run(path, plan)
    for rank in range(plan.ranks):
        rows = build_steps(plan)
        edit(rank, rows)
        lay_end_to_end(rows)
        write_rows(layout.rank_path(path, rank), "steps", rows)
    return path


def build_collectives(steps: Sequence[Row], late: bool) -> list[Row]:
    """Two calls in each detailed step; a rank that is late starts 12 ms after the others and ends with them."""
    rows: list[Row] = []
    for step in (row for row in steps if row["detailed"]):
        for call in range(2):
            shift = 12 * MS if late else 0
            begin = step["start_ns"] + (20 + 20 * call) * MS
            common = {"step": step["step"], "name": "allreduce", "group": "default", "index": len(rows)}
            size = {"bytes": 8 * MIB, "dtype": "Float", "group_size": 4, "on_device": True}
            rows.append({**common, **size, "start_ns": begin + shift, "duration_ns": 14 * MS - shift})
    return rows


def build_resources(steps: Sequence[Row], workers: int = 2, gpu: bool = False, growth_bytes: float = 0.0) -> list[Row]:
    """A sample every 500 ms; the process grows by `growth_bytes` from the first to the last."""
    first, last = steps[0]["start_ns"], steps[-1]["start_ns"] + steps[-1]["duration_ns"]
    times = list(range(first, last, 500 * MS))
    rows: list[Row] = []
    for number, time in enumerate(times):
        wave = 0.1 * (number % 5)
        values = {
            ("system", "cpu_cores"): 2.6 + 2 * wave,
            ("system", "memory_bytes"): 9e9,
            ("system", "read_bytes_per_s"): 2e6 * wave,
            ("process", "cpu_cores"): 1.1 + wave,
            ("process", "memory_bytes"): 1.2e9 + growth_bytes * number / max(len(times) - 1, 1),
            ("process", "run_queue_frac"): 0.03 + 0.1 * wave,
            ("process", "read_bytes_per_s"): 0.0,
        }
        for worker in range(workers):
            values[f"worker {worker}", "cpu_cores"] = 0.5 + 0.2 * worker + wave
            values[f"worker {worker}", "memory_bytes"] = 4e8
        if gpu:
            values |= {
                ("gpu 0", "utilization_frac"): 0.8 - wave,
                ("gpu 0", "memory_bytes"): 21.0 * (1 << 30),
                ("gpu 0", "power_w"): 420.0 + 100 * wave,
                ("gpu 0", "temperature_c"): 61.0,
                ("gpu 0", "clock_hz"): 1.98e9,
            }
        rows += [{"start_ns": time, "source": s, "metric": m, "value": v} for (s, m), v in values.items()]
    return rows


def build_memory(steps: Sequence[Row], device: int = 0) -> list[Row]:
    """Per detailed step: four blocks of 64, 32, 16 and 8 MiB taken and given back, the 8 MiB kept; 512 MiB from before."""
    rows: list[Row] = []
    held, address = 512 * MIB, 4096
    for step in (row for row in steps if row["detailed"]):
        blocks = []
        at = step["start_ns"] + 5 * MS
        for size, operator in ((64, "aten::mm"), (32, "aten::convolution"), (16, "aten::relu"), (8, "aten::empty")):
            address += 1 << 20
            blocks.append((address, size * MIB))
            held += size * MIB
            rows.append(_change(step, at, device, held, size * MIB, (address, operator)))
            at += 4 * MS
        for place, size in reversed(blocks[:3]):
            held -= size
            rows.append(
                _change(step, at, device, held, -size, (place, "autograd::engine::evaluate_function: MmBackward0"))
            )
            at += 4 * MS
    return rows


def _change(step: Row, at: int, device: int, held: int, change: int, what: tuple[int, str]) -> Row:
    address, operator = what
    return {
        "start_ns": at,
        "step": step["step"],
        "device": device,
        "allocated_bytes": held,
        "reserved_bytes": 1024 * MIB if device >= 0 else None,
        "change_bytes": change,
        "address": address,
        "operator": operator,
    }


def build_machine(path: Path, gpu: bool = True, steps: int = 200) -> Path:
    """Write a run with samples of everything, on a GPU or on the processor only."""
    plan = RunPlan(steps=steps)
    build_run(path, plan)
    rows = build_steps(plan)
    folder = layout.rank_path(path, 0)
    write_rows(folder, "resources", build_resources(rows, gpu=gpu))
    write_rows(folder, "memory", build_memory(rows, device=0 if gpu else -1))
    if gpu:
        manifest = dataclasses.replace(open_run(path).rank(0).manifest, devices=(H100,))
        layout.rank_file(path, 0).write_text(encode_manifest(manifest), encoding="utf-8")
    return path
