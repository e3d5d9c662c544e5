"""Planted cases for the rules: small runs with one thing wrong, and healthy ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collector.format.schema.manifest import Overhead, Window
from tests.support import host_cases, own_work
from tests.support.plants import A100, Plant, build_case_run, plan_of, slow, step_of
from tests.support.row_edits import (
    alternate,
    answer_at_once,
    begin_epochs,
    begin_slowly,
    collect_garbage,
    compiled,
    compute_all,
    cpu_cores,
    evaluate,
    forget_all,
    name_transforms,
    process_memory,
    send_slowly,
    shift,
    slow_down,
    stall,
    vary_samples,
)
from tests.support.runs import MS

__all__ = ["A100", "HEALTHY", "PLANTED", "Plant", "build_case_run", "plan_of", "slow", "step_of"]

PLANTED: Mapping[str, Plant] = {
    **host_cases.PLANTED,
    **own_work.PLANTED,
    "no_workers": Plant(plan_of(workers=0, data_wait=33.0)),
    "watched_input": Plant(
        plan_of(workers=0, data_wait=33.0),
        edit_stages=forget_all,
        loader={"watched": True, "style": "iterable", "cpu_frac": 0.1, "reads_ahead": False},
    ),
    "too_few_workers": Plant(slow("read")),
    "workers_capped_by_cores": Plant(
        slow("transform"), edit_stages=compute_all, manifest={"usable_cores": 2.0, "torch_threads": 1}
    ),
    "oversubscribed_workers": Plant(
        dataclasses.replace(slow("transform"), workers=6, transform_ms=300.0, phases_ms=step_of(data_wait=140.0)),
        edit_stages=compute_all,
        manifest={"usable_cores": 2.0, "torch_threads": 1},
    ),
    "slow_read": Plant(slow("read"), edit_stages=compute_all, manifest={"usable_cores": 2.0, "torch_threads": 1}),
    "slow_transform": Plant(
        slow("transform"), edit_stages=name_transforms, manifest={"usable_cores": 2.0, "torch_threads": 1}
    ),
    "slow_collate": Plant(slow("collate"), edit_stages=compute_all, manifest={"usable_cores": 2.0, "torch_threads": 1}),
    "ipc_bound": Plant(slow("collate"), edit_stages=send_slowly),
    "uneven_samples": Plant(
        dataclasses.replace(
            plan_of(workers=4, depths=(0, 3, 2, 0), data_wait=20.0), read_ms=20.0, transform_ms=20.0, collate_ms=2.0
        ),
        edit_stages=vary_samples,
    ),
    "shallow_prefetch": Plant(
        dataclasses.replace(
            plan_of(workers=1, depths=(0, 1), data_wait=23.0),
            prefetch_factor=1,
            read_ms=4.0,
            transform_ms=6.0,
            collate_ms=0.9,
        ),
        edit_stages=alternate,
    ),
    "debug_modes": Plant(manifest={"facts": {"anomaly_mode": True}}),
    "float64": Plant(
        manifest={"facts": {"optimizers": [{"name": "SGD", "foreach": True, "dtypes": {"float64": 50, "float32": 50}}]}}
    ),
    "worker_restart": Plant(edit=begin_epochs(10, wait_ms=400.0, start_ms=300.0)),
    "in_memory_fetch": Plant(
        plan_of(workers=0, data_wait=5.0, forward=5.0, backward=6.0, optimizer=1.0, tail=0.1),
        edit_stages=forget_all,
        loader={"batch_size": 256},
    ),
    "pin_thread": Plant(
        dataclasses.replace(plan_of(depths=(4,), data_wait=30.0), pin_memory=True),
        manifest={"devices": (A100,)},
        tables={
            "queues": [
                {
                    "step": n,
                    "start_ns": n * 100 * MS,
                    "loader": 0,
                    "queue": queue,
                    "depth": depth,
                    "capacity": 4,
                    "next_ready": depth > 0,
                }
                for n in range(1, 101)
                for queue, depth in (("worker_queue", 4), ("pin_queue", 0))
            ]
        },
    ),
    "pageable_copy": Plant(plan_of(h2d=20.0), manifest={"devices": (A100,)}),
    "blocking_copy": Plant(dataclasses.replace(plan_of(h2d=25.0), pin_memory=True), manifest={"devices": (A100,)}),
    "serial_copy": Plant(plan_of(h2d=25.0)),
    "optimizer_loop": Plant(
        plan_of(optimizer=40.0),
        manifest={"facts": {"optimizers": [{"name": "AdamW", "foreach": False, "fused": None, "tensors": 600}]}},
    ),
    "python_gap": Plant(plan_of(tail=30.0)),
    "periodic_stall": Plant(edit=stall(10, "tail", 300.0)),
    "checkpoint_stall": Plant(
        edit=stall(16, "tail", 300.0),
        tables={
            "ranges": [
                {
                    "id": n,
                    "name": "save checkpoint",
                    "path": "save checkpoint",
                    "thread_id": 1,
                    "start_ns": n * 1_000 * MS,
                    "duration_ns": 300 * MS,
                    "failed": False,
                }
                for n in range(6)
            ]
        },
    ),
    "validation_share": Plant(edit=evaluate),
    "gc_pauses": Plant(edit=collect_garbage),
    "recompiles": Plant(
        tables={"compiles": compiled(("compile", 900, None), *[("recompile", 400, "tensor 'x' size mismatch")] * 3)}
    ),
    "graph_breaks": Plant(
        tables={"compiles": compiled(("compile", 900, None), ("graph_break", 0, "Call to `print`\n  Hint: none"))}
    ),
    "threads_over_cores": Plant(manifest={"torch_threads": 32, "usable_cores": 4.0}),
    "exposed_all_reduce": Plant(dataclasses.replace(plan_of(communication=60.0), ranks=2)),
    "fixed_straggler": Plant(dataclasses.replace(plan_of(), ranks=2)),
    "warm_up": Plant(edit=begin_slowly),
    "drift": Plant(edit=slow_down, tables={"resources": cpu_cores(process=2.0, system=2.1)}),
    "shift": Plant(dataclasses.replace(plan_of(), steps=200), edit=shift(90, 12.0)),
    "memory_creep": Plant(tables={"resources": process_memory(*(1e9 + n * 2e7 for n in range(30)))}),
    "collector_overhead": Plant(manifest={"overhead": Overhead(4_000_000.0, 0.0625, "timed")}),
    "noisy_host": Plant(tables={"resources": cpu_cores(process=1.0, system=3.5)}),
}


"""Per rule a run in which it must speak. Those that need a device have their own tests."""


HEALTHY: Mapping[str, Plant] = {
    **host_cases.HEALTHY,
    "plain SGD on a processor": Plant(
        plan_of(optimizer=40.0),
        manifest={"facts": {"optimizers": [{"name": "SGD", "foreach": False, "fused": None, "momentum": False}]}},
    ),
    "compute": Plant(),
    "half of the parameters but one in double": Plant(
        manifest={"facts": {"optimizers": [{"name": "SGD", "foreach": True, "dtypes": {"float64": 49, "float32": 51}}]}}
    ),
    "a cache that fills": Plant(tables={"resources": process_memory(1.0e9, 1.1e9, 1.3e9, *[1.5e9] * 7)}),
    "quiet host": Plant(tables={"resources": cpu_cores(process=2.0, system=2.1)}),
    "a watched input that others read": Plant(
        plan_of(workers=0, data_wait=3.0),
        edit_stages=forget_all,
        loader={"watched": True, "style": "iterable", "cpu_frac": 0.1, "reads_ahead": True},
    ),
    "no workers, cheap samples": Plant(
        dataclasses.replace(plan_of(workers=0, data_wait=2.0), read_ms=1.0, transform_ms=0.8, collate_ms=0.2)
    ),
    "waiting a little": Plant(plan_of(data_wait=2.5)),
    "cuda, pinned": Plant(
        dataclasses.replace(plan_of(h2d=1.0), pin_memory=True), manifest={"devices": (A100,), "torch_threads": 32}
    ),
    "fused optimizer": Plant(
        plan_of(optimizer=20.0), manifest={"facts": {"optimizers": [{"name": "AdamW", "foreach": None, "fused": True}]}}
    ),
    "epochs with persistent workers": Plant(edit=begin_epochs(25, wait_ms=35.0), loader={"persistent_workers": True}),
    "one long step": Plant(edit=stall(60, "tail", 80.0)),
    "compiled once, a shape twice": Plant(
        tables={"compiles": compiled(("compile", 900, None), ("recompile", 400, "tensor 'x' size mismatch"))}
    ),
    "a world that answers at once": Plant(edit=answer_at_once),
    "two balanced ranks": Plant(dataclasses.replace(plan_of(communication=2.0), ranks=2)),
    "some evaluation": Plant(edit=lambda steps: steps.extend({**s, "kind": "eval"} for s in steps[:10])),
    "many workers that wait": Plant(dataclasses.replace(plan_of(workers=8, depths=(16,)), read_ms=200.0)),
    "a few steps less in the middle": Plant(dataclasses.replace(plan_of(), steps=200), edit=shift(90, 2.0, "tail")),
    "windows": Plant(manifest={"windows": (Window(10, 12, 0, 1),)}),
}


"""Runs in which nothing is worth saying."""
