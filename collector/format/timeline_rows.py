"""Place the rows of tables on a timeline. The page, its export and the traces of `Run.write_trace` share this.

A process is a heading; a row below it is a thread. The processes are the training, the main process, each DataLoader
worker, and the user's own pipeline, which has a row for each replica of a stage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import PHASE_LABELS
from collector.format.schema.errors import OptionError, TableMissingError
from collector.format.words import STAGES

if TYPE_CHECKING:
    from collector.format.run import RankRun

TRAINING = "Training"
MAIN_PROCESS = "Main process"
PIPELINE = "Data pipeline"
STEP_COLUMNS = ("step", "kind", "start_ns", "duration_ns")
PHASE_COLUMNS = ("step", "phase", "start_ns", "duration_ns")
RANGE_COLUMNS = ("id", "parent", "name", "process", "thread_id", "step", "start_ns", "duration_ns")
COLLECTIVE_COLUMNS = ("step", "name", "group", "start_ns", "duration_ns", "held_ns")
STAGE_COLUMNS = ("stage", "replica", "kind", "detail", "loader", "start_ns", "duration_ns")
WAIT_COLOUR = "grey"
"""The colour of waits, by its name in chrome://tracing."""
_WORKER = re.compile(r"Worker ([0-9]{1,9})\b")
_KIND_LABELS = {
    "input_wait": "wait on input queue",
    "output_wait": "wait on output queue",
    "setup": "set up",
    "cleanup": "clean up",
}


@dataclass(frozen=True)
class Row:
    """One row of the timeline: its kind, its heading (`process`) and its label (`name`)."""

    kind: Literal["step", "phase", "range", "worker", "stage"]
    process: str
    name: str


@dataclass(frozen=True)
class Placed:
    """The rows of a table on the timeline. `rows` are timeline rows in display order. For each row of the table, `row`
    is its place in `rows`; `name` and `category` are those of its slice."""

    rows: tuple[Row, ...]
    row: npt.NDArray[np.int32]
    name: pa.Array
    category: pa.Array


def place_steps(steps: pa.Table) -> Placed:
    kind = _text(steps["kind"])
    train, evaluation = pc.equal(kind, "train"), pc.equal(kind, "eval")
    number = pc.binary_join_element_wise("Step", _text(steps["step"]), " ")
    name = pc.if_else(train, number, pc.if_else(evaluation, "Evaluation", kind))
    category = pc.if_else(train, "step", pc.if_else(evaluation, "annotation", "other"))
    return _place_on_one(Row("step", TRAINING, "Steps"), name, category)


def place_phases(phases: pa.Table) -> Placed:
    """Return the timeline rows of the table `phases`, which needs PHASE_COLUMNS."""
    name = _relabel(phases["phase"], PHASE_LABELS)
    return _place_on_one(Row("phase", TRAINING, "Phases"), name, _constant("phase", phases.num_rows))


def place_ranges(ranges: pa.Table) -> Placed:
    """Return the timeline rows of the table `ranges`, one per thread. The table needs RANGE_COLUMNS."""
    process = pc.fill_null(_text(ranges["process"]), "")
    threads = pc.binary_join_element_wise(process, _text(ranges["thread_id"]), ".").dictionary_encode()
    names = threads.dictionary.to_pylist()
    rows = tuple(Row("range", TRAINING, "Ranges" if len(names) == 1 else f"Ranges, thread {name}") for name in names)
    return Placed(rows, _codes(threads), _text(ranges["name"]), _constant("annotation", ranges.num_rows))


def place_collectives(collectives: pa.Table) -> Placed:
    """Return the timeline rows of the table `collectives`, one per process group. It needs COLLECTIVE_COLUMNS."""
    groups = pc.fill_null(_text(collectives["group"]), "").dictionary_encode()
    names = groups.dictionary.to_pylist()
    rows = tuple(Row("range", TRAINING, f"Collectives, group {name or 'default'}") for name in names)
    category = _constant("communication", collectives.num_rows)
    return Placed(rows, _codes(groups), _text(collectives["name"]), category)


def select_light(collectives: pa.Table) -> pa.Table:
    """Return the collectives timed outside of detailed windows. Inside a window, collectives are slices already."""
    return collectives.filter(pc.is_valid(collectives["held_ns"]))


def place_stages(stages: pa.Table) -> Placed:
    """Return the timeline rows of the table `stages`: workers, main process, the user's stages. It needs STAGE_COLUMNS."""
    stage, kind = _text(stages["stage"]), _text(stages["kind"])
    replica = _text(pc.fill_null(stages["replica"], -1))
    loader = pc.fill_null(_text(stages["loader"]), "")
    keys = pc.binary_join_element_wise(loader, replica, stage, "\0").dictionary_encode()
    found = [_StageKey.parse(text) for text in keys.dictionary.to_pylist()]
    several = len({key.loader for key in found if key.loader is not None}) > 1
    order = sorted(range(len(found)), key=lambda place: found[place].order)
    place_of = np.empty(len(found), np.int32)
    place_of[order] = np.arange(len(found), dtype=np.int32)
    detail = pc.fill_null(_text(stages["detail"]), "")
    work = pc.if_else(pc.equal(detail, ""), stage, pc.binary_join_element_wise(stage, detail, ": "))
    other = pc.binary_join_element_wise(stage, _relabel(stages["kind"], _KIND_LABELS), ": ")
    return Placed(
        tuple(found[place].describe(several) for place in order),
        place_of[_codes(keys)],
        pc.if_else(pc.equal(kind, "work"), work, other),
        pc.if_else(pc.ends_with(kind, "_wait"), "wait", "stage"),
    )


def find_workers(stages: pa.Table) -> pa.ChunkedArray:
    """Return the DataLoader worker's number for each row of `stages`, null for all other rows."""
    is_worker = pc.and_(pc.is_valid(stages["loader"]), pc.greater_equal(stages["replica"], 0))
    return pc.if_else(is_worker, stages["replica"], None)


def find_worker(process: str) -> int | None:
    """Return the worker's number for a timeline process, None if the process is no worker."""
    found = _WORKER.match(process)
    return int(found[1]) if found else None


def sort_place(process: str, name: str) -> tuple[int, int, int, str]:
    """Return the sort key of a timeline row: the order on the page, as far as process and name determine it."""
    known = STAGES.index(name) if name in STAGES else len(STAGES)
    if process == TRAINING:
        return 0, 0, ("Steps", "Phases", name).index(name), name
    worker = find_worker(process)
    if worker is not None:
        return 2, worker, known, process
    return {MAIN_PROCESS: 3, PIPELINE: 4}.get(process, 1), 0, known, ""


@dataclass(frozen=True)
class _StageKey:
    loader: int | None
    replica: int
    stage: str

    @classmethod
    def parse(cls, text: str) -> _StageKey:
        loader, replica, stage = text.split("\0", 2)
        return cls(int(loader) if loader else None, int(replica), stage)

    @property
    def worker(self) -> int | None:
        return self.replica if self.loader is not None and self.replica >= 0 else None

    @property
    def order(self) -> tuple[int, int, int, int, str]:
        known = STAGES.index(self.stage) if self.stage in STAGES else len(STAGES)
        if self.loader is None:
            return 2, 0, 0, self.replica, self.stage
        return int(self.worker is None), self.loader, self.replica, known, self.stage

    def describe(self, several: bool) -> Row:
        of_loader = f", loader {self.loader}" if several else ""
        if self.loader is None:
            return Row("stage", PIPELINE, f"{self.stage} {self.replica}")
        if self.worker is None:
            return Row("stage", MAIN_PROCESS, f"{self.stage}{of_loader}")
        return Row("worker", f"Worker {self.worker}{of_loader}", self.stage)


def _place_on_one(row: Row, name: pa.Array, category: pa.Array) -> Placed:
    return Placed((row,), np.zeros(len(name), np.int32), name, category)


def _text(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(pa.string())


def _codes(encoded: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    codes: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return codes


def _constant(text: str, size: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([text], pa.string()))


def _relabel(column: pa.ChunkedArray, labels: dict[str, str]) -> pa.Array:
    encoded = _text(column).dictionary_encode()
    shown = pa.array([labels.get(value, value) for value in encoded.dictionary.to_pylist()], pa.string())
    return shown.take(encoded.indices)


_MOST_TOLD = 20


def list_workers(ranks: Sequence[RankRun]) -> list[int]:
    """Return the ranks' worker numbers, sorted; ranks without `stages` are skipped. Raises as `RankRun.table`."""
    found: set[int] = set()
    for rank in ranks:
        try:
            stages = rank.table("stages", ("loader", "replica"))
        except TableMissingError:
            continue
        found |= set(pc.unique(pc.drop_null(find_workers(stages))).to_pylist())
    return sorted(found)


def keep_workers(stages: pa.Table, workers: Collection[int]) -> pa.Table:
    """Return the rows of `stages` for the given workers, and the rows that belong to no worker."""
    worker = find_workers(stages)
    return stages.filter(pc.or_(pc.is_null(worker), pc.is_in(worker, pa.array(sorted(workers), pa.int32()))))


def check_numbers(what: str, there: Sequence[int], wanted: Iterable[int]) -> list[int]:
    """Return the wanted numbers, such as of workers (`what`). If one is not in `there`, the existing numbers, raise
    OptionError, which lists these."""
    known = set(there)
    chosen = []
    for number in wanted:
        if number not in known:
            told = ", ".join(map(str, there[:_MOST_TOLD])) + (" …" if len(there) > _MOST_TOLD else "")
            raise OptionError(f"the run has no {what} {number}; it has {told or 'none'}")
        chosen.append(number)
    return chosen
