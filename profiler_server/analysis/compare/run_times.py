"""What the gate reads of runs: their times, their differences, and the order of their recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from collector.format.intervals import Floats
from collector.format.phases import PHASES
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import TableMissingError
from collector.format.schema.manifest import RunManifest, RunState
from collector.format.steps import read_integers, select_steps, train_steps
from profiler_server.analysis.memory.resources import summarize_host
from profiler_server.analysis.tables import find_rows
from profiler_server.diagnosis.limits.compare import BUSY_FRAC
from profiler_server.facts.machine import HostLoad
from profiler_server.format import clean_name

MOST_NAMED = 3


@dataclass(frozen=True)
class Likeness:
    """Properties that runs must share for their steps to do the same work. An unrecorded property is "", 0 or empty.

    `batch_sizes` are the distinct batch sizes of the run's DataLoaders. `parameters` is the number of parameters that
    its optimizers train.
    """

    script: str
    host: str
    world_size: int
    rank: int
    batch_sizes: tuple[int, ...] = ()
    parameters: int = 0


def read_likeness(manifest: RunManifest, rank: RankRun) -> Likeness:
    sizes = {loader.batch_size for loader in rank.manifest.loaders if loader.batch_size}
    return Likeness(
        script=clean_name(manifest.script or ""),
        host=clean_name(manifest.host),
        world_size=manifest.world_size,
        rank=rank.rank,
        batch_sizes=tuple(sorted(sizes)),
        parameters=_count_parameters(rank),
    )


def find_unlike(runs: Sequence[Likeness]) -> list[str]:
    """Return cautions on the properties that differ between runs, with values in the given order of runs."""
    found = _name_different("scripts", [run.script for run in runs])
    found += _name_different("hosts", [run.host for run in runs])
    ranks = list(dict.fromkeys(f"rank {run.rank}" for run in runs))
    shown = f"{ranks[0]} of each" if len(ranks) == 1 else " and ".join(ranks[:MOST_NAMED])
    found += _name_different(
        "numbers of ranks", [_show_count(run.world_size) for run in runs], f"; compared is {shown}"
    )
    parameters = [_show_count(run.parameters) for run in runs]
    found += _name_different("models", parameters, " trained parameters")
    sizes = [" with ".join(map(_show_count, run.batch_sizes)) for run in runs]
    return found + _name_different("batch sizes", sizes, ": their steps do not do the same work")


def _show_count(value: int) -> str:
    return f"{value:,}" if value else ""


def _name_different(what: str, values: Sequence[str], more: str = "") -> list[str]:
    named = list(dict.fromkeys(filter(None, values)))
    if len(named) < 2:
        return []
    shown, left = named[:MOST_NAMED], len(named) - MOST_NAMED
    words = f"{', '.join(shown)} and {left} more" if left > 0 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return [f"different {what}: {words}{more}"]


def _count_parameters(rank: RankRun) -> int:
    optimizers = rank.manifest.facts.get("optimizers")
    if not isinstance(optimizers, list):
        return 0
    counts = (entry.get("parameters") for entry in optimizers if isinstance(entry, dict))
    return sum(count for count in counts if isinstance(count, int))


MOST_KERNELS = 10
"""The number of compared kernels: the longest over all runs."""


@dataclass(frozen=True, kw_only=True)
class RunTimes(Likeness):
    """The times of one rank of a run in ns.

    `steps_ns` has the duration of each steady step. `parts_ns` has the mean per step of each phase. `kernels_ns` has
    the mean per detailed step of each kernel, and is empty without detailed steps. `others_cores` is the mean number
    of processor cores that other programs used, None if not sampled. `cores` is the number that the run may use.
    `state` is the state of the run.
    """

    name: str
    started_unix_ns: int
    steps_ns: Floats
    parts_ns: Mapping[str, float]
    others_cores: float | None = None
    cores: float | None = None
    noun: str = "step"
    kernels_ns: Mapping[str, float] = field(default_factory=dict)
    state: RunState = "complete"


def read_times(run: Run, rank: int | None = None) -> RunTimes:
    """Read one rank of a run, the first by default. Raises TableMissingError without a step to average."""
    one = run.rank(rank)
    rows = read_step_rows(one)
    steps = train_steps(rows.steps)
    kept = steps.filter(pa.array(select_steps(steps).kept))
    if not kept.num_rows:
        raise TableMissingError(f"{run.path} has no step to compare")
    durations: Floats = read_integers(kept, "duration_ns").astype(float)
    phases = {phase.label: float(read_integers(kept, f"{phase.name}_ns").mean()) for phase in PHASES}
    manifest, load = run.manifest, _read_load(one, kept)
    return RunTimes(
        name=clean_name(manifest.name),
        started_unix_ns=manifest.created_unix_ns,
        steps_ns=durations,
        parts_ns=phases,
        others_cores=_count_others(load),
        cores=one.manifest.usable_cores,
        noun=rows.noun,
        kernels_ns=_read_kernels(one),
        state=run.state,
        **vars(read_likeness(manifest, one)),
    )


def gather_parts(*sides: Sequence[RunTimes]) -> list[list[dict[str, float]]]:
    """Return for each side and each of its runs the time in ns per step: of all phases, and of the longest kernels.

    Kernels are left out unless every run has them. All runs share one choice of kernels, because the tenth longest
    kernel of a run may be the eleventh of another.
    """
    every = [run for side in sides for run in side]
    sums: dict[str, float] = {}
    for run in every:
        for name, value_ns in run.kernels_ns.items():
            sums[name] = sums.get(name, 0.0) + value_ns
    longest = sorted(sums, key=lambda name: -sums[name])[:MOST_KERNELS]
    names = longest if all(run.kernels_ns for run in every) else []
    return [
        [{**run.parts_ns, **{name: run.kernels_ns.get(name, 0.0) for name in names}} for run in side] for side in sides
    ]


def measure_others(rank: RankRun, steps: pa.Table) -> float | None:
    """Return how many processor cores other programs used during these steps; None if not sampled."""
    return _count_others(_read_load(rank, steps))


def _read_load(rank: RankRun, steps: pa.Table) -> HostLoad | None:
    if not steps.num_rows:
        return None
    first, last = int(steps["start_ns"][0].as_py()), int(steps["start_ns"][-1].as_py())
    return summarize_host(rank, first, last)


def _count_others(load: HostLoad | None) -> float | None:
    return load.others if load is not None and load.system is not None else None


def name_load(name: str, others_cores: float | None, cores: float | None) -> tuple[str, ...]:
    """Return a caution if other programs kept the host busy while the run `name` recorded; empty if not, or if unknown."""
    if others_cores is None or not cores or others_cores <= BUSY_FRAC * cores:
        return ()
    return (f"other programs used {others_cores:.1f} of {cores:g} cores while {name} ran",)


def _read_kernels(rank: RankRun) -> dict[str, float]:
    rows = find_rows(rank, "kernels", ("step", "name", "total_ns"))
    steps = len(set(rows["step"].drop_null().to_pylist()))
    if not steps:
        return {}
    sums = rows.filter(rows["step"].is_valid()).group_by("name").aggregate([("total_ns", "sum")])
    found: dict[str, float] = {}
    for row in sums.to_pylist():
        name = clean_name(str(row["name"]))
        found[name] = found.get(name, 0.0) + row["total_ns_sum"] / steps
    return found


def order_runs(runs: Sequence[RunTimes]) -> list[RunTimes]:
    return sorted(runs, key=lambda run: run.started_unix_ns)


def are_interleaved(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> bool:
    """Return whether the runs were recorded in pairs, one of each side. Drift then affects both sides equally."""
    if len(base) != len(new):
        return False
    order = sorted([(run.started_unix_ns, 0) for run in base] + [(run.started_unix_ns, 1) for run in new])
    sides = [side for _, side in order]
    return all(set(sides[at : at + 2]) == {0, 1} for at in range(0, len(sides), 2))


def find_order_cautions(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> tuple[str, ...]:
    """Return a caution if one side was recorded entirely before the other: hosts change over hours."""
    if min(len(base), len(new)) < 2:
        return ()
    starts = [[run.started_unix_ns for run in order_runs(runs)] for runs in (base, new)]
    if starts[0][-1] < starts[1][0] or starts[1][-1] < starts[0][0]:
        return (
            "the runs of one side were all recorded before those of the other: what changed on the host meanwhile counts "
            "as a change of the program; `stepscope run --against` records both in pairs",
        )
    return ()
