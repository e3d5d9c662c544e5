"""An opened run for scripts and notebooks: its tables, and methods to print, draw and export them.

Modules other than those for text tables are imported only when needed.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from collector import server
from collector.format import run as files
from collector.format.rank import RankRun, describe_steps, make_frame, read_step_rows
from collector.format.schema.errors import StepscopeError, TableMissingError
from collector.format.schema.wording import format_ranks
from collector.format.steps import summarize_phases, summarize_steps
from collector.notebook import summaries

if TYPE_CHECKING:
    import pandas as pd

    from collector.notebook.advice import Advice
    from collector.notebook.operators import Operator
    from collector.notebook.statistics import Statistics

_TRACKED = "stepscope/"


class Run(files.Run):
    """A run directory: `manifest`, `ranks`, `rank(r)`; `table` and `frame` read the first rank unless a rank is given.

    With a `redactor`, the manifests and tables contain none of the names that the user chose.
    """

    def __repr__(self) -> str:
        try:
            shown = _list_facts(self)
        except (StepscopeError, OSError) as error:
            return f"Run({str(self.path)!r}: {error})"
        return f"Run({shown['Name']!r}, {', '.join(list(shown.values())[1:4])})"

    def _repr_html_(self) -> str:
        try:
            shown = _list_facts(self)
        except (StepscopeError, OSError):
            return f"<p>{html.escape(repr(self))}</p>"
        rows = "".join(f"<tr><th>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in shown.items())
        return f"<table>{rows}</table>"

    def spans(
        self, rank: int | None = None, *, categories: Any = None, activities: Any = None, steps: Any = None
    ) -> pd.DataFrame:
        """Return all recorded spans of a rank as one frame, sorted by start; times are ns since the run's epoch.

        Columns: trace_id, span_id, parent_span_id, start, end, dur, cat, name, process, thread, device, stream, step,
        operator_index (of host operators, by start), launched_by; nullable integers are Int64. `categories` is one or
        several values of `cat`, `activities` "cpu", "device" or both, `steps` a number or
        (first, last). OptionError names an unknown value, TableBrokenError the damaged file.

        >>> run.spans(categories="kernel").groupby("name").dur.sum()
        """
        from collector.notebook.frames import OPTIONAL

        return make_frame(self._build_spans(rank, categories, activities, steps), OPTIONAL)

    def operator(self, name: str, rank: int | None = None) -> Operator:
        """Return count, total and mean of one operator, and the same for each input shape.

        Only the detailed windows (steps recorded with torch.profiler) have operators. OptionError names the nearest
        operator if none has that name. Raises as `RankRun.table` does.

        >>> print(run.operator("aten::mm"))
        """
        from collector.notebook.operators import OPERATOR_COLUMNS, find_operator

        return find_operator(self.rank(rank).table("operators", OPERATOR_COLUMNS), name)

    def statistics(self, rank: int | None = None) -> Statistics:
        """Return the total time of each stage by kind of time, its counters, and the wall time of the run.

        A run without steps has these, too. Raises as `RankRun.table` does.

        >>> run.statistics().frame().sort_values("total_ns")
        """
        from collector.notebook.statistics import sum_statistics

        return sum_statistics(self.rank(rank), self.manifest.name)

    def suggestions(self, rank: int | None = None) -> Advice:
        """Return the bottleneck of the run, the changes to make and the predicted step time, as on its pages.

        The result can be printed, shown in a notebook, and iterated over. Raises as `RankRun.table` does.

        >>> print(run.suggestions())
        """
        from collector.notebook.advice import Advice

        return Advice(*server.diagnose(self, self.rank(rank).rank))

    def metrics(self, rank: int | None = None) -> dict[str, float]:
        """Return numbers without nesting, for an experiment tracker.

        The numbers are: mean, median and p99 step time, the mean of each phase and the fraction of step time in data
        wait, over the steps that every page averages; and the number of all training steps. Times are in seconds. The
        p99 is missing for fewer than 20 steps. If the server is installed and they are known, also: samples, tokens and
        tokens without padding per second, the share of these tokens, the MFU, and the time to the first step. Raises as
        `RankRun.table` does.

        >>> mlflow.log_metrics(run.metrics())  # or wandb.log(…), or add_scalar(name, value) for each
        """
        return _flatten_figures(self.rank(rank))

    def device_executions(self, rank: int | None = None) -> pd.DataFrame:
        """Return count, total_ns, busy_ns and wait_ns of the work of each device in each step of the detailed windows.

        The frame is empty without a device.
        """
        return self._sum_executions(rank).to_pandas()

    def figure(self, kind: str = "steps", rank: int | None = None) -> Any:
        """Return a chart of the pages as a Plotly figure for a notebook: steps, phases, operators or queues.

        OptionError for another kind, UsageError if plotly or the server is not installed; else raises as
        `RankRun.table` does.
        """
        from collector.notebook.charts import build_figure

        one = self.rank(rank)
        return build_figure(one, kind, f"{self.manifest.name}, rank {one.rank}: {kind}")

    def write_trace(
        self, path: str | os.PathLike[str], ranks: Sequence[int] | None = None, workers: Sequence[int] | None = None
    ) -> int:
        """Write the spans of the ranks (None for all) as a trace for Perfetto or chrome://tracing; return the number of
        events.

        `workers` selects DataLoader workers by number; the numbers stay the same. Without `workers`, the trace also
        carries the tables of its ranks, from which `stepscope import` restores them. A path that ends in .gz is
        compressed. RunNotFoundError or OptionError for a rank or worker that does not exist; OutputError if the file
        cannot be written, and then no file is left.
        """
        from collector.notebook.writing import write_run

        return write_run(self, path, self.ranks if ranks is None else ranks, workers)

    def _build_spans(self, rank: int | None, categories: Any = None, activities: Any = None, steps: Any = None) -> Any:
        from collector.notebook.frames import build_spans, parse_choice

        choice = parse_choice(categories, activities, steps)
        one = self.rank(rank)
        return build_spans(one, f"{self.manifest.name} rank {one.rank}", choice)

    def _sum_executions(self, rank: int | None) -> pa.Table:
        from collector.notebook.operators import sum_executions

        return sum_executions(self._build_spans(rank, activities="device"))

    def print_summary(self, rank: int | None = None) -> None:
        """Print a summary of the run, its steps and its operators."""
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
        """Print count, min, max, mean, median, p90, p95, p97, p99 and p99.9 in ms of training steps and their phases."""
        self._print("steps", summaries.describe_steps, rank, summaries.STEP_COLUMNS)

    def print_operators(self, rank: int | None = None) -> None:
        """Print the host operators of the detailed windows, and the device operators if there are any."""
        self._print("operators", summaries.describe_operators, rank, ("name", "count", "total_ns", "self_ns"))
        if self.rank(rank).status("kernels").state == "there":
            print()
            self._print("kernels", summaries.describe_kernels, rank, ("name", "count", "total_ns"))

    def print_host_operators(self, rank: int | None = None) -> None:
        """Print the host operators of the first detailed step, in order of their start."""
        operators = pc.field("category") == "operator"
        columns = ("name", "step", "start_ns", "duration_ns")
        self._print("slices", summaries.describe_host_operators, rank, columns, operators)

    def print_each_step(self, rank: int | None = None) -> None:
        """Print every training step with its phases, at most the first 1,000."""
        self._print("steps", summaries.describe_each_step, rank, summaries.STEP_COLUMNS)

    def print_device_operators(self, rank: int | None = None) -> None:
        """Print mean time and count of the device operators."""
        self._print("kernels", summaries.describe_kernels, rank, ("name", "count", "total_ns"))

    def print_device_executions(self, rank: int | None = None) -> None:
        """Print total, busy and waiting time of each device in each step of the detailed windows."""
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
        one = self.rank(rank)
        try:
            print(describe(one.table(table, columns, where)), end="")
        except TableMissingError:
            print(one.status(table).reason)


def open_run(path: str | Path, base_dir: str | Path | None = None) -> Run:
    """Open the run at a path: the directory that holds `profiler/`, `profiler/` itself, or a file of `stepscope
    pack`, which is unpacked into a private temporary folder until Python ends.

    With a `base_dir`, the path may also be the id or name of a run in this folder, as in the commands. Raises
    RunNotFoundError if no run matches, or if several runs have the name (the message lists their ids); LinkedRunError
    if a link lies inside; NewerSchemaError or TableBrokenError if the manifest or the file cannot be read.

    >>> stepscope.open_run("digits", base_dir="runs")
    """
    run = Run(files.find_folder(path, base_dir))
    run.manifest  # noqa: B018  fail here, not at the first use
    return run


def _list_facts(run: Run) -> dict[str, str]:
    manifest = run.manifest
    state = f"{run.state}, recovered" if run.is_recovered else run.state
    return {
        "Name": manifest.name or run.path.name,
        "State": state,
        "Ranks": format_ranks(len(run.ranks), manifest.world_size),
        "Steps": describe_steps(run.rank()) if run.ranks else "no steps",
        "Host": manifest.host,
        "Path": str(run.path),
    }


def _flatten_figures(rank: RankRun) -> dict[str, float]:
    rows = read_step_rows(rank).steps
    summary, phases = summarize_steps(rows), summarize_phases(rows)
    found = {"steps": float(summary.count)}
    if (times := summary.duration_ns) is not None:
        found |= {"step_seconds": times.mean / 1e9}
        ranked = (("p50", times.p50), ("p99", times.p99))
        found |= {f"step_seconds_{name}": value / 1e9 for name, value in ranked if value is not None}
    for phase in phases:
        found[f"phase_seconds/{phase.name}"] = phase.mean_ns / 1e9
        if phase.name == "data_wait":
            found["data_wait_ratio"] = phase.share_frac
    if times is not None and server.find_missing_package() is None:
        found |= server.measure_use(rank)
    return {f"{_TRACKED}{name}": value for name, value in found.items()}
