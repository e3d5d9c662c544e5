"""The cell magic `%%stepscope [output_path]`, after `%load_ext stepscope`: record a cell that trains, then show its run.

IPython runs the cell itself: only the line of the magic is replaced by a call. So errors, line numbers, `await` and the
value of the last line are those of the cell.
"""

from __future__ import annotations

from typing import Any

from collector import Profiler, StepscopeError, active_profiler
from collector.server import find_missing_package

_MAGIC = "%%stepscope"


class _CellProfiler(Profiler):
    """A Profiler that prints no verdict, because the cell shows it."""

    def _judge(self, report: Any = None) -> list[str]:
        return []


def register(shell: Any) -> None:
    """Make the magic known to a shell of IPython. A second call changes nothing."""
    if replace_magic not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(replace_magic)


def unregister(shell: Any) -> None:
    """Take the magic away."""
    if replace_magic in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(replace_magic)


def replace_magic(lines: list[str]) -> list[str]:
    """Return the lines of a cell with a call of `begin` in place of the magic."""
    magic, _, path = lines[0].strip().partition(" ") if lines else ("", "", "")
    if magic != _MAGIC:
        return lines
    return [f"__import__('stepscope.notebook').notebook.begin({path.strip()!r})\n", *lines[1:]]


def begin(output_path: str) -> None:
    """Record from now to the end of the running cell. A path may stand in quotation marks."""
    from IPython import get_ipython
    from IPython.core.error import UsageError  # IPython shows it in one line

    shell = get_ipython()
    if (earlier := active_profiler()) is not None:
        raise UsageError(
            f"a Profiler is already recording to {earlier.output_path}; "
            "end it with stepscope.active_profiler().analyse(), then run this cell again"
        )
    profiler = _CellProfiler(output_path.strip("\"'") or None)

    def end(result: Any) -> None:
        shell.events.unregister("post_run_cell", end)
        _end(profiler, result.error_in_exec)

    shell.events.register("post_run_cell", end)


def _end(profiler: Profiler, error: BaseException | None) -> None:
    from IPython.display import display

    profiler.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
    run = profiler._open_run()
    try:
        rank = run.rank()
        if not rank.count_steps() and not rank.count_steps("eval"):
            return  # which was said on stderr
        display(run)
        if error is None and find_missing_package() is None:
            display(run.suggestions())
    except StepscopeError:
        return  # nothing was recorded, which was said on stderr
