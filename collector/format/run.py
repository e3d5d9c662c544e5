"""Open a run directory: typed, validated access to its manifest, its ranks and their tables.

Pandas is imported where a frame is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.finding import find_run
from collector.format.lens import Lens, Redactor
from collector.format.rank import RankRun, TableState, TableStatus
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError, TableBrokenError, TableMissingError
from collector.format.schema.inside import refuse_links
from collector.format.schema.manifest import RunManifest, RunState, decode_manifest
from collector.format.schema.modes import spell_closed
from collector.format.schema.reading import read_small_text
from collector.format.schema.recovery import spell_recovery
from collector.format.schema.wording import format_ranks
from collector.views import showing, summaries

if TYPE_CHECKING:
    import pandas as pd

    from collector.views.advice import Advice
    from collector.views.operators import Operator
    from collector.views.statistics import Statistics

__all__ = ["RankRun", "Run", "TableState", "TableStatus", "open_run"]


class Run:
    """A run directory: `manifest`, `ranks`, `rank(r)`; `table` and `frame` read the first rank unless one is given.

    With a `redactor` neither the manifests nor the tables of its ranks hold a name of the user's.
    """

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self.path = path
        self.redactor = redactor

    def __repr__(self) -> str:
        return showing.describe_run(self)

    def _repr_html_(self) -> str:
        return showing.render_run(self)

    @property
    def key(self) -> tuple[str, Redactor | None]:
        """What tells this run, as it is seen here, from every other: the key of whatever is computed from it."""
        return str(self.path), self.redactor

    @cached_property
    def manifest(self) -> RunManifest:
        """Return run.json. Raises RunNotFoundError, TableBrokenError or NewerSchemaError."""
        path = layout.run_file(self.path)
        try:
            text = read_small_text(path)
        except FileNotFoundError:
            raise RunNotFoundError(f"{self.path} is no run: {path} does not exist") from None
        except (OSError, UnicodeDecodeError) as error:
            raise TableBrokenError(f"{path} cannot be read ({error}); run `{spell_recovery(path)}`") from None
        manifest = decode_manifest(RunManifest, text, str(path), self.redactor is None)
        return manifest if self.redactor is None else self.redactor.redact_run(manifest)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks that left a folder. Raises RunNotFoundError if the run is gone."""
        try:
            return layout.find_ranks(self.path)
        except OSError as error:
            raise RunNotFoundError(f"{self.path} cannot be listed ({error})") from None

    def rank(self, rank: int | None = None) -> RankRun:
        """Return one rank, the first for None. Raises RunNotFoundError naming the ranks that there are."""
        ranks = self.ranks
        if rank is None and ranks:
            rank = ranks[0]
        if rank is None or rank not in ranks:
            there = ", ".join(map(str, ranks[:20])) or "none"
            raise RunNotFoundError(f"{self.path} has no rank {rank}; it has: {there}")
        return self.read_rank(rank)

    def read_rank(self, rank: int) -> RankRun:
        """Return a rank that is known to be there, without looking."""
        return RankRun(self.path, rank, Lens(redactor=self.redactor))

    @property
    def state(self) -> RunState:
        """Return the worst state of its ranks: crashed, then recording, then complete or imported."""
        states = {self.read_rank(rank).state for rank in self.ranks}
        for state in ("crashed", "recording", "imported", "complete"):
            if state in states:
                return state
        return "crashed"

    @property
    def is_recovered(self) -> bool:
        """Say whether ranks were cut off, and all that they left is in their tables."""
        cut_off = [rank for number in self.ranks if (rank := self.read_rank(number)).state == "crashed"]
        return bool(cut_off) and all(rank.is_recovered for rank in cut_off)

    def table(self, name: str, rank: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table of one rank. Raises as `RankRun.table` does."""
        return self.rank(rank).table(name, columns)

    def frame(self, name: str, rank: int | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table of one rank as a pandas frame. Raises as `RankRun.table` does."""
        return self.rank(rank).frame(name, columns)

    def spans(
        self, rank: int | None = None, *, categories: Any = None, activities: Any = None, steps: Any = None
    ) -> pd.DataFrame:
        """Return all that a rank recorded as one frame of spans, in order of start; times are ns since the run's epoch.

        Columns: trace_id, span_id, parent_span_id, start, end, dur, cat, name, process, thread, device, stream, step,
        operator_index (of host operators, by start), launched_by; numbers that may be absent are Int64. `categories` is
        one or some of `collector.views.frames.CATEGORIES`, `activities` "cpu", "device" or both, `steps` a number or
        (first, last). OptionError names what is not known, TableBrokenError the damaged file.

        >>> run.spans(categories="kernel").groupby("name").dur.sum()
        """
        from collector.views.frames import OPTIONAL, make_frame

        return make_frame(self._build_spans(rank, categories, activities, steps), OPTIONAL)

    def operator(self, name: str, rank: int | None = None) -> Operator:
        """Return count, total and mean of one operator of the detailed windows, and the same for each input shape.

        OptionError names the nearest operator if there is none of that name. Raises as `RankRun.table` does.

        >>> print(run.operator("aten::mm"))
        """
        from collector.views.operators import OPERATOR_COLUMNS, find_operator

        return find_operator(self.rank(rank).table("operators", OPERATOR_COLUMNS), name)

    def statistics(self, rank: int | None = None) -> Statistics:
        """Return totals by stage and kind of time, with counters, and the true wall time; also of a run without steps.

        Raises as `RankRun.table` does.

        >>> run.statistics().frame().sort_values("total_ns")
        """
        from collector.views.statistics import sum_statistics

        return sum_statistics(self.rank(rank), self.manifest.name)

    def suggestions(self, rank: int | None = None) -> Advice:
        """Return what bounds the run, what to change and the step that is predicted then, as its pages say it.

        It can be printed, shown in a notebook, and iterated over. Raises as `RankRun.table` does.

        >>> print(run.suggestions())
        """
        from collector.views.advice import judge

        return judge(self, self.rank(rank).rank)

    def metrics(self, rank: int | None = None) -> dict[str, float]:
        """Return the mean, median and p99 step, the mean of each phase, the share of data wait and the number of steps as
        flat numbers for a tracker, over the steps that every page averages. Times are seconds. Raises as `RankRun.table`
        does.

        >>> mlflow.log_metrics(run.metrics())  # or wandb.log(…), or add_scalar(name, value) for each
        """
        from collector.views.metrics import flatten_figures

        return flatten_figures(self.rank(rank))

    def device_executions(self, rank: int | None = None) -> pd.DataFrame:
        """Return total, busy and wait of each device in each step of the detailed windows; empty without a device."""
        return self._sum_executions(rank).to_pandas()

    def figure(self, kind: str = "steps", rank: int | None = None) -> Any:
        """Return a Plotly figure for a notebook: steps, phases, operators, queues or stages.

        OptionError for another kind, UsageError if plotly is not installed; else raises as `RankRun.table` does.
        """
        from collector.views.charts import build_figure

        one = self.rank(rank)
        return build_figure(one, kind, f"{self.manifest.name}, rank {one.rank}: {kind}")

    def write_trace(
        self, path: str | os.PathLike[str], ranks: Sequence[int] | None = None, workers: Sequence[int] | None = None
    ) -> int:
        """Write the spans of all ranks, or some, as a trace for Perfetto or chrome://tracing; return its events.

        Of the DataLoader workers all or those of the numbers given, which they keep. `profiler-server import` gives
        the same run again. A path that ends in .gz is compressed. RunNotFoundError or OptionError for a rank or worker
        that is not there; OutputError if the file cannot be written, and nothing is there then.
        """
        from collector.views.writing import write_run

        return write_run(self, path, self.ranks if ranks is None else ranks, workers)

    def _build_spans(self, rank: int | None, categories: Any = None, activities: Any = None, steps: Any = None) -> Any:
        from collector.views.frames import build_spans, parse_choice

        choice = parse_choice(categories, activities, steps)
        one = self.rank(rank)
        return build_spans(one, f"{self.manifest.name} rank {one.rank}", choice)

    def _sum_executions(self, rank: int | None) -> pa.Table:
        from collector.views.operators import sum_executions

        return sum_executions(self._build_spans(rank, activities="device"))

    def print_summary(self, rank: int | None = None) -> None:
        """Print what the run is, its steps and its operators."""
        one = self.rank(rank)
        manifest = self.manifest
        state = f"{self.state}, recovered" if self.is_recovered else self.state
        ranks = format_ranks(len(self.ranks), manifest.world_size)
        which = "" if max(len(self.ranks), manifest.world_size) == 1 else f"this is rank {one.rank}"
        print(", ".join(filter(None, (f"{manifest.name}: {state}", ranks, which, manifest.host))))
        print()
        self.print_steps(rank)
        print()
        self.print_operators(rank)

    def print_steps(self, rank: int | None = None) -> None:
        """Print count, min, max, mean, median, p90, p95, p97, p99 and p99.9 of the training steps and their phases."""
        self._print("steps", summaries.describe_steps, rank, summaries.STEP_COLUMNS)

    def print_operators(self, rank: int | None = None) -> None:
        """Print the operators of the detailed windows and, where there are any, those of the device."""
        self._print("operators", summaries.describe_operators, rank, ("name", "count", "total_ns", "self_ns"))
        if self.rank(rank).status("kernels").state == "there":
            print()
            self._print("kernels", summaries.describe_kernels, rank, ("name", "count", "total_ns"))

    def print_host_operators(self, rank: int | None = None) -> None:
        """Print the host operators of the first detailed step in the order in which they began."""
        operators = pc.field("category") == "operator"
        columns = ("name", "step", "start_ns", "duration_ns")
        self._print("slices", summaries.describe_host_operators, rank, columns, operators)

    def print_each_step(self, rank: int | None = None) -> None:
        """Print every training step with its phases, the first 1,000 of them."""
        self._print("steps", summaries.describe_each_step, rank, summaries.STEP_COLUMNS)

    def print_device_operators(self, rank: int | None = None) -> None:
        """Print mean and count of the device operators."""
        self._print("kernels", summaries.describe_kernels, rank, ("name", "count", "total_ns"))

    def print_device_executions(self, rank: int | None = None) -> None:
        """Print total, busy and wait of each device in each step of the detailed windows."""
        print(summaries.describe_executions(self._sum_executions(rank)), end="")

    def print_ranges(self, rank: int | None = None) -> None:
        """Print count, host and device time of the ranges that the script marked."""
        columns = ("path", "duration_ns", "device_ns", "total_items", "failed")
        self._print("ranges", summaries.describe_ranges, rank, columns)

    def _print(
        self,
        table: str,
        describe: Callable[[pa.Table], str],
        rank: int | None,
        columns: Sequence[str],
        where: pc.Expression | None = None,
    ) -> None:
        """Print a table, or a plain line where it is not there. Raises TableBrokenError, NewerSchemaError."""
        one = self.rank(rank)
        try:
            print(describe(one.table(table, columns, where)), end="")
        except TableMissingError:
            print(one.status(table).reason)


def open_run(path: str | Path, base_dir: str | Path | None = None) -> Run:
    """Open the run at a path: the directory that holds `profiler/`, or `profiler/` itself.

    With a `base_dir` also by its id or name below that folder, as the commands do. Raises RunNotFoundError if there is
    none, or if several have the name, which it lists; LinkedRunError if a link lies inside; NewerSchemaError or
    TableBrokenError if its manifest cannot be read.

    >>> collector.open_run("digits", base_dir="runs")
    """
    folder = _find_folder(Path(path))
    if base_dir is not None and (folder is None or not layout.run_file(folder).is_file()):
        folder = find_run(Path(base_dir).expanduser(), str(path))
    if folder is None:
        raise RunNotFoundError(f"{str(path)[:200]!r} is no path")
    refuse_links(folder)
    run = Run(folder)
    run.manifest  # noqa: B018  fail here, not at the first use
    return run


def _find_folder(path: Path) -> Path | None:
    """Return the directory that holds `profiler/`; None for what can be no path, such as one with a null byte."""
    try:
        folder = path.expanduser().resolve()
        is_inner = folder.name == layout.PROFILER_FOLDER and (folder / layout.RUN_FILE).is_file()
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(layout.run_file(folder))
    except PermissionError:
        raise RunNotFoundError(spell_closed(layout.profiler_path(folder))) from None
    except (OSError, RuntimeError, ValueError):
        return None
    return folder.parent if is_inner else folder
