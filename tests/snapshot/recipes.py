"""What is recorded: a name, and what fills an empty folder with one run or some that belong together. Nothing lists them
but what the other tests have: scripts, loops, planted cases, jobs, ends, traces."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pyarrow.parquet as pq

import collector
from collector.format.schema import layout
from collector.format.schema.tables import TABLES
from collector.traces.importing import import_trace, list_files
from tests.endings.cells import Choice, list_cells
from tests.endings.trial import run_trial_in
from tests.snapshot.apart import DONE
from tests.snapshot.still import LIVE
from tests.support import shapes
from tests.support.cases import HEALTHY, PLANTED, Plant, build_case_run
from tests.support.dumps import make_dump, make_entry
from tests.support.item_pipeline import run_pipeline
from tests.support.jobs import JobPlan, write_job
from tests.support.machines import build_ranks
from tests.support.panorama import PANORAMA, build_rich
from tests.support.planted_jobs import plan_cases
from tests.support.recording import record
from tests.support.shapes import compiled, fetching, few_batches, groups, updates
from tests.support.shapes import held_out as held
from tests.support.standing import TOLD, hold_job
from tests.support.status import make_communicator, make_rank, make_status
from tests.support.window_cases import HEALTHY_WINDOWS, WINDOW_CASES
from tests.support.windows import build_window
from tests.zoo.draw.choosing import Draw, draw_programs
from tests.zoo.scoring.recording import Recorder

Recipe = Callable[[Path], object]
RUN = "run"
LIMIT_S = 120.0
GOLDEN = Path(__file__).parents[1] / "golden/traces"
ENDS = (
    *(("plain", way) for way in ("return", "window open", "exception", "SIGKILL", "SIGTERM", "in evaluation")),
    *(("workers", way) for way in ("return", "exception in evaluation")),
    *(("ddp", way) for way in ("return", "window open", "SIGKILL", "rank exception", "collective skipped")),
    *((kind, "return") for kind in ("ddp-tutorial", "fsdp2", "spawned-ranks", "restarts", "threads", "fork", "spawn")),
    *((kind, "window open") for kind in ("lightning", "trainer", "accelerate")),
)
"""Kind of job and way to end, of those that `tests.endings` has."""
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"window": (10, 3), "memory": True},
    {"window": (1, 2), "data_pipeline": False},
    {"window": (5, 2), "level": "debug"},
    {"level": "important"},
)
DRAWN = (1, 5, 2)
"""Seed, planted and healthy programs of those that `tests.zoo.draw` can write."""


def list_recipes(traces: Sequence[Path]) -> dict[str, Recipe]:
    """Return what to record by its name, with an import of each of the trace files, or of those in the folders."""
    found = (_list_trainings(), _list_jobs(), _list_built(), _list_damaged(), _list_imports(traces))
    return {_spell(name): recipe for part in found for name, recipe in part}


def record_one(folder: Path, traces: Sequence[Path]) -> None:
    """Fill the folder with what its name stands for."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    list_recipes(traces)[folder.name](folder.resolve())
    (folder / DONE).touch()


def _spell(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def _list_trainings() -> Iterator[tuple[str, Recipe]]:
    for program in draw_programs(*DRAWN):
        yield f"drawn-{program.script}", partial(_record_drawn, program)
    for module in (shapes, compiled, fetching, few_batches, groups, held, updates):
        for name, found in inspect.getmembers(module, inspect.isfunction):
            if found.__module__ == module.__name__ and not inspect.signature(found).parameters:
                yield f"loop-{name}", partial(_record_loop, found)
    yield "inference", partial(_record_loop, _infer)
    yield "inference-window", partial(_record_loop, _infer, window=(5, 3))
    yield "ranges", partial(_record_loop, _mark_ranges, window=(4, 3))
    yield "own-queues", partial(_record_loop, lambda: run_pipeline({"decode": 0.002, "augment": 0.006}, Queue, Thread))
    yield "nothing", partial(_record_loop, lambda: None)
    for options in OPTIONS:
        name = "-".join(map(str, options.values()))
        yield f"options-{name}", partial(_record_loop, few_batches.one_batch_over_and_over, **options)


def _record_drawn(program: Draw, folder: Path) -> None:
    """Record a program, then the same without its plant: the later run can say what became of the advice."""
    (folder / f"{program.script}.py").write_text(program.text, "utf-8")
    for form, arguments in ((RUN, ()), ("mended", ("--fixed",)))[: 2 if program.cause else 1]:
        ran = Recorder(folder, folder, steps=40).record(program.script, form, arguments).ran
        assert ran.exit_code == 0, ran.said


def _record_loop(loop: Callable[[], None], folder: Path, **options: object) -> None:
    record(folder / RUN, loop, **options)


def _infer() -> None:
    held.validate(shapes.Net(), shapes.loader(800, num_workers=1))


def _mark_ranges() -> None:
    """Ranges within ranges, one of which fails, and batches that are counted."""
    model = shapes.Net()
    for number, batch in enumerate(shapes.loader(640)):
        with collector.record("step"):
            collector.push_range("augment", batch_idx=number)
            collector.pop_range(total_items=len(batch[0]))
            shapes.train_on(model, shapes.sgd(model), [batch])
    with suppress(OSError), collector.record("save"):
        raise OSError("planted")


def _list_jobs() -> Iterator[tuple[str, Recipe]]:
    for kind, way in ENDS:
        yield f"end-{kind}-{way}", partial(_record_end, kind, way)
    yield "standing", _record_standing
    for plan in plan_cases(1, (2, 8, 160)):
        kind = "slow" if plan.slow else "turns" if plan.takes_turns else "even"
        yield f"job-{plan.ranks}-{kind}", partial(_write_job, plan)
    plan = JobPlan(ranks=8, calls=3)
    yield "job-8-slow-call", partial(_write_job, replace(plan, slow_call=1))
    yield "job-8-uneven", partial(_write_job, replace(plan, uneven_frac=0.3))
    yield (
        "job-8-two-hosts",
        partial(_write_job, replace(plan, ranks_per_host=4, apart_ns=5e9, slow=(5,), slow_frac=0.3)),
    )


def _record_end(kind: str, way: str, folder: Path) -> None:
    cell = next(iter(list_cells(Choice((kind,), (way,), ("idle",)))))
    run_trial_in(folder, cell, cell.door, LIMIT_S)
    for leavings in ("tmp", "work"):
        shutil.rmtree(folder / leavings)
    assert any(folder.rglob(layout.RUN_FILE)), "nothing was recorded"


def _write_job(plan: JobPlan, folder: Path) -> None:
    write_job(folder / RUN, plan)


def _record_standing(folder: Path) -> None:
    """Copy a job while it stands still."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as scratch, hold_job(Path(scratch)) as job:
        until_s = time.monotonic() + LIMIT_S
        while TOLD not in ((job / "said1").read_text("utf-8") if (job / "said1").exists() else ""):
            assert time.monotonic() < until_s, "it does not stand still"
            time.sleep(0.2)
        shutil.copytree(job / "job", folder / RUN)
    (folder / LIVE).touch()


def _list_built() -> Iterator[tuple[str, Recipe]]:
    for name, build in PANORAMA.items():
        yield f"kind-{name}", partial(_build, build)
    for name, plant in (*PLANTED.items(), *(("healthy " + name, plant) for name, plant in HEALTHY.items())):
        yield f"case-{name}", partial(_build_case, plant)
    steps = {**{name: case.planted for name, case in WINDOW_CASES.items()}, **HEALTHY_WINDOWS}
    for name, step in steps.items():
        yield f"window-{name}", partial(build_window, body=step)


def _build(build: Callable[[Path], object], folder: Path) -> None:
    build(folder / RUN)


def _build_case(plant: Plant, folder: Path) -> None:
    build_case_run(folder / RUN, plant)


def _list_damaged() -> Iterator[tuple[str, Recipe]]:
    yield "damaged-rank", _damage_rank
    yield "damaged-tables", _damage_tables
    yield "damaged-run", _damage_run
    yield "earlier-schema", _make_older


def _damage_rank(folder: Path) -> None:
    build_ranks(folder / RUN)
    layout.rank_file(folder / RUN, 1).write_text('{"rank": 1}', "utf-8")


def _damage_tables(folder: Path) -> None:
    """Cut the end off every second table."""
    build_rich(folder / RUN)
    for path in sorted(layout.rank_path(folder / RUN, 0).glob("*.parquet"))[::2]:
        path.write_bytes(path.read_bytes()[:-100])


def _damage_run(folder: Path) -> None:
    """One run that cannot be opened beside two that can, of which one lies deeper."""
    for name in ("a", "team/b", "c"):
        build_ranks(folder / name, 2)
    layout.run_file(folder / "a").write_text("{", "utf-8")


def _make_older(folder: Path) -> None:
    """Take away what versions since the first have added: columns that may be null, and all facts."""
    build_rich(folder / RUN)
    rank = layout.rank_path(folder / RUN, 0)
    for name, table in TABLES.items():
        path = layout.table_file(rank, name)
        if path.exists():
            added = [column.name for column in table.columns if column.nullable]
            stored = pq.read_table(path)
            pq.write_table(stored.drop_columns([column for column in added if column in stored.column_names]), path)
    manifest = json.loads(layout.rank_file(folder / RUN, 0).read_text("utf-8"))
    layout.rank_file(folder / RUN, 0).write_text(json.dumps({**manifest, "facts": {}}), "utf-8")


def _list_imports(traces: Sequence[Path]) -> Iterator[tuple[str, Recipe]]:
    yield "dumps-behind", partial(_import_dumps, 3)
    yield "dumps-missing", partial(_import_dumps, None)
    yield "status", _import_status
    jobs: dict[str, list[Path]] = {}
    for path in list_files([GOLDEN, *traces]):
        name = path.name.split(".")[0]
        yield f"trace-{name}", partial(_import, [path])
        jobs.setdefault(re.sub(r"_\d+$", "", name), []).append(path)
    for name, paths in jobs.items():
        if len(paths) > 1:
            yield f"trace-{name}-all", partial(_import, paths)


def _import(paths: list[Path], folder: Path) -> None:
    import_trace(list(paths), folder / RUN)


def _import_dumps(behind: int | None, folder: Path) -> None:
    """Three ranks that wait in a collective, and a fourth that has not entered it, or left no dump."""
    whole = [make_entry(number) for number in range(800, 812)]
    (folder / "dumps").mkdir()
    for rank in range(4 if behind is not None else 3):
        dump = make_dump(whole if rank == behind else [*whole, make_entry(812, "started")])
        (folder / "dumps" / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    import_trace(folder / "dumps", folder / RUN)


def _import_status(folder: Path) -> None:
    ranks = [make_rank(rank, 811 if rank in (3, 5) else 812) for rank in range(8)]
    (folder / "ras.json").write_text(json.dumps(make_status(make_communicator(ranks))), "utf-8")
    import_trace(folder / "ras.json", folder / RUN)
