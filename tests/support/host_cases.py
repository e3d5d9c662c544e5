"""Planted and healthy cases of the rules that judge facts of the host, of processes and of ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.plants import Plant, plan_of, slow
from tests.support.row_edits import Row, begin_epochs, compute_all
from tests.support.runs import MS

_COUNT = 40
TWO_CORES = {"usable_cores": 2.0, "cpu_count": 2, "torch_threads": 1}


def sampled(batch_ns: int, loader: int = 0) -> dict[str, Any]:
    """Return the facts of a sampler that takes so long for each batch."""
    sums = {
        "kind": "Weighted",
        "epochs": 1,
        "batches": 99,
        "first_ns": batch_ns,
        "longest_ns": batch_ns,
        "rest_ns": 99 * batch_ns,
    }
    return {"samplers": [{"loader": loader, **sums}]}


def logged(step_ns: int) -> dict[str, Any]:
    """Return the facts of a library that logs for so long in each of 100 steps."""
    sums = {"name": "TensorBoard", "calls": 300, "total_ns": 100 * step_ns, "longest_ns": 2 * step_ns}
    return {"logging": {"steps": 100, "libraries": [sums]}}


def called(**changes: Any) -> dict[str, Any]:
    """Return the facts of a model that was called once in each of five steps that were looked at."""
    plain = {"looks": 5, "calls": 5, "padded": 0, "useful_frac": 1.0, "longest_frac": 1.0, "width": 0, "rows": 0}
    times = {
        "again": 0,
        "again_ns": 0,
        "compared": 0,
        "known": 0,
        "known_ns": 0,
        "model": "Tagger",
        "place": "train.py:31",
    }
    return {"calls": [{**plain, **times, **changes}]}


def compute_rows() -> list[Row]:
    """Return the slices of a product and of its backward, node 7, in the eleventh step."""
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    common = {"track": 1, "depth": 0, "category": "operator", "sequence": 7, "step": 11}
    return [
        {**common, "id": 0, "name": "aten::addmm", "start_ns": 10**9, "duration_ns": 10 * MS},
        {**common, "id": 1, "name": node, "start_ns": 2 * 10**9, "duration_ns": 20 * MS},
    ]


def ddp(**changes: Any) -> dict[str, Any]:
    """Return the facts of a DistributedDataParallel with sound settings and some changed."""
    sound = {
        "backend": "gloo",
        "device_type": "cpu",
        "parameter_bytes": 40 << 20,
        "unused_bytes": 0,
        "bucket_bytes": [1 << 20, 25 << 20, 14 << 20],
        "find_unused_parameters": 0,
        "gradient_as_bucket_view": 1,
        "backwards": 100,
        "synced_backwards": 100,
    }
    return {"ddp": {**sound, **changes}}


def host_samples(**levels: float) -> list[Row]:
    """Return samples over the first seconds of a run: `source__metric` is its level."""
    return [
        {"start_ns": 1_000 * MS + n * 100 * MS, "source": source.replace("_", " "), "metric": metric, "value": value}
        for n in range(_COUNT)
        for source, _, metric, value in ((*name.partition("__"), value) for name, value in levels.items())
    ]


def open_files(files: int, open_ms: float, size: int = 4096) -> Callable[[list[Row]], None]:
    """Return an edit of stages: each batch opens so many files."""

    def edit(stages: list[Row]) -> None:
        for row in stages:
            if row["stage"] == "read" and row["kind"] == "work":
                row |= {"opened": files, "open_ns": int(open_ms * MS), "bytes": files * size}

    return edit


CROWDED = host_samples(
    process__cpu_cores=0.5, process__run_queue_frac=0.2, worker_0__cpu_cores=0.7, worker_1__cpu_cores=0.7,
    worker_0__run_queue_frac=0.2, worker_1__run_queue_frac=0.2, system__cpu_cores=1.9,
)  # fmt: skip
"""Two workers keep up, and leave the step too little of two cores."""


def queue_for(share: float) -> list[Row]:
    """Return the same samples with a training thread that queues for this share of its time."""
    return [
        {**row, "value": share} if (row["source"], row["metric"]) == ("process", "run_queue_frac") else row
        for row in CROWDED
    ]


def share_storage(stages: list[Row]) -> None:
    """Workers that read at once get as much together as one alone, and half of the batches are read by one alone."""
    reads = [row for row in stages if row["stage"] == "read" and row["kind"] == "work"]
    for at, row in enumerate(reads):
        alone = at % 4 < 2
        row["start_ns"] = (at // 2) * 1_000 * MS + (at % 2) * 500 * MS * alone
        row |= {"duration_ns": (200 if alone else 400) * MS, "bytes": 20 << 20, "cpu_ns": MS}


def decode_twice(stages: list[Row]) -> None:
    """Two epochs of reading that computes, and batches of 1 MB."""
    compute_all(stages)
    sends = []
    for row in stages:
        row["epoch"] = 1 + (row["batch"] >= 50)
        row["batch"] %= 50
        if row["stage"] == "collate":
            sends.append({**row, "stage": "send", "duration_ns": MS, "cpu_ns": MS, "bytes": 1 << 20})
    stages += sends


def read_cold(stages: list[Row]) -> None:
    """Reading takes ten times as long in the first half of the batches, which are the first epoch, and waits."""
    for row in stages:
        row["epoch"] = 1 + (row["batch"] >= 50)
        if row["stage"] == "read" and row["kind"] == "work":
            row["cpu_ns"] = MS
            row["duration_ns"] *= 10 if row["epoch"] == 1 else 1


def accumulate(steps: list[Row]) -> None:
    for step in steps:
        step["backwards"] = 4


def vary_by(steps: list[Row], most_ms: int) -> None:
    for at, step in enumerate(steps):
        step["forward_ns"] += MS * (at * at % 11 * most_ms // 11)


def vary_widely(steps: list[Row]) -> None:
    """Steps of one, three and five times the usual length, in no order that repeats."""
    for at, step in enumerate(steps):
        step["forward_ns"] += 128 * MS * (at * at % 7 % 3)


def start_late(steps: list[Row]) -> None:
    steps[0]["data_wait_ns"] += 12_000 * MS
    steps[0]["loader_start_ns"] = 12_000 * MS


_TWO_RANKS = dataclasses.replace(plan_of(communication=30.0), ranks=2)
_READING = {"usable_cores": 16.0, "cpu_count": 16}


PLANTED: Mapping[str, Plant] = {
    "slow_sampler": Plant(plan_of(data_wait=20.0), manifest={"facts": sampled(19_000_000)}),
    "small_files": Plant(slow("read"), edit_stages=open_files(64, 200.0), manifest=TWO_CORES),
    "storage_bandwidth": Plant(slow("read"), edit_stages=share_storage, manifest=_READING),
    "repeated_decode": Plant(slow("read"), edit_stages=decode_twice, manifest=TWO_CORES, loader={"length_batches": 50}),
    "cold_cache": Plant(edit_stages=read_cold),
    "threads_in_workers": Plant(
        manifest={"usable_cores": 4.0, "cpu_count": 4},
        tables={
            "resources": host_samples(
                process__cpu_cores=0.4, worker_0__cpu_cores=2.5, worker_1__cpu_cores=2.1, system__cpu_cores=4.0
            )
        },
    ),
    "workers_take_processors": Plant(
        dataclasses.replace(plan_of(), read_ms=60.0, transform_ms=16.0, collate_ms=4.0),
        edit_stages=compute_all,
        manifest=TWO_CORES,
        tables={"resources": CROWDED},
    ),
    "cgroup_throttling": Plant(
        manifest={"usable_cores": 2.0, "cpu_count": 8},
        tables={"resources": host_samples(cgroup__throttled_frac=0.6, cgroup__throttled_cores=2.0)},
    ),
    "memory_pressure": Plant(tables={"resources": host_samples(cgroup__memory_stall_frac=0.4)}),
    "gil_contention": Plant(
        tables={"resources": host_samples(process__python_threads_cores=0.6, process__main_thread_cores=0.5)}
    ),
    "jitter": Plant(edit=vary_widely),
    "slow_start": Plant(edit=start_late),
    "numa": Plant(manifest={"facts": {"numa_nodes": 2}, "usable_cores": 4.0, "torch_threads": 4}),
    "data_parallel": Plant(manifest={"facts": {"data_parallel": 4}}),
    "gloo_on_cuda": Plant(_TWO_RANKS, manifest={"facts": ddp(device_type="cuda")}),
    "no_sync_missing": Plant(_TWO_RANKS, edit=accumulate, manifest={"facts": ddp(backwards=400, synced_backwards=400)}),
    "bucket_size": Plant(_TWO_RANKS, manifest={"facts": ddp(bucket_bytes=[100_000] * 40)}),
    "find_unused_parameters": Plant(
        dataclasses.replace(plan_of(communication=2.0), ranks=2), manifest={"facts": ddp(find_unused_parameters=1)}
    ),
    "bucket_copies": Plant(
        dataclasses.replace(plan_of(communication=2.0), ranks=2),
        manifest={"facts": ddp(gradient_as_bucket_view=0, parameter_bytes=50_000_000)},
    ),
    "rotating_straggler": Plant(dataclasses.replace(plan_of(), ranks=2)),
    "slow_rank_loader": Plant(dataclasses.replace(plan_of(), ranks=2)),
    "late_selection": Plant(
        manifest={"facts": {"spare_nodes": {"step": 11, "nodes": [[7, 7, 0, 2]], "used_frac": 0.1}}},
        tables={"slices": compute_rows()},
    ),
    "padding_waste": Plant(manifest={"facts": called(padded=5, useful_frac=0.3, longest_frac=0.4)}),
    "repeated_call": Plant(manifest={"facts": called(calls=10, again=5, again_ns=5 * 10 * MS)}),
}

HEALTHY: Mapping[str, Plant] = {
    "a little padding": Plant(manifest={"facts": called(padded=5, useful_frac=0.85)}),
    "padding in a few batches": Plant(manifest={"facts": called(padded=2, useful_frac=0.3)}),
    "a short call that is repeated": Plant(manifest={"facts": called(calls=10, again=5, again_ns=5 * MS // 2)}),
    "a call that is repeated now and then": Plant(manifest={"facts": called(calls=6, again=1, again_ns=20 * MS)}),
    "a quick sampler": Plant(plan_of(data_wait=2.0), manifest={"facts": sampled(1_500_000)}),
    "files that are opened beside the step": Plant(edit_stages=open_files(64, 8.0)),
    "a cold cache that workers hide": Plant(dataclasses.replace(plan_of(), read_ms=0.2), edit_stages=read_cold),
    "decoding that keeps up, epoch after epoch": Plant(
        edit=begin_epochs(50, wait_ms=0.0), edit_stages=decode_twice, loader={"persistent_workers": True}
    ),
    "a little logging": Plant(manifest={"facts": logged(300_000)}),
    "one thread beside busy workers": Plant(
        manifest={"torch_threads": 1, "usable_cores": 3.0},
        tables={
            "resources": host_samples(process__cpu_cores=1.0, worker_0__cpu_cores=0.9, system__cpu_cores=2.0),
        },
    ),
    "workers that leave the step its processor": Plant(
        dataclasses.replace(plan_of(), read_ms=60.0, transform_ms=16.0, collate_ms=4.0),
        edit_stages=compute_all,
        manifest=TWO_CORES,
        tables={"resources": queue_for(0.03)},
    ),
    "a quota that is hardly used up": Plant(
        tables={"resources": host_samples(cgroup__throttled_frac=0.1, cgroup__throttled_cores=0.1)}
    ),
    "some waiting for memory": Plant(tables={"resources": host_samples(cgroup__memory_stall_frac=0.05)}),
    "a Python thread that lets the interpreter go": Plant(
        tables={"resources": host_samples(process__python_threads_cores=0.9, process__main_thread_cores=0.97)}
    ),
    "a Python thread that hardly computes": Plant(
        tables={"resources": host_samples(process__python_threads_cores=0.1)}
    ),
    "steps that vary a little": Plant(edit=lambda steps: vary_by(steps, 20)),
    "one memory node": Plant(manifest={"facts": {"numa_nodes": 1}}),
    "DataParallel without a second device": Plant(manifest={"facts": {"data_parallel": 1}}),
    "sound DistributedDataParallel": Plant(
        dataclasses.replace(plan_of(communication=2.0), ranks=2), manifest={"facts": ddp()}
    ),
    "accumulation under no_sync": Plant(
        dataclasses.replace(plan_of(communication=5.0), ranks=2),
        edit=accumulate,
        manifest={"facts": ddp(backwards=400, synced_backwards=100)},
    ),
}
