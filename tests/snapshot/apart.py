"""Tasks in processes of their own, some at a time: what one leaves in memory, or how it ends, is nothing to the others."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

DONE = ".recorded"
"""A file of this name says that a folder of runs is whole."""
LIMIT_S = 600.0
Task = tuple[Callable[..., object], tuple[Any, ...]]


def run_apart(tasks: Mapping[str, Task], preloaded: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Do the tasks, one for each core at a time; yield the name of each when it is done, and what went wrong or "".

    What they import from the modules `preloaded` is imported once for all.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        waiting = {threads.submit(_run, context, task): name for name, task in tasks.items()}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _run(context: Any, task: Task) -> str:
    process = context.Process(target=task[0], args=task[1])
    process.start()
    process.join(LIMIT_S)
    if process.is_alive():
        process.kill()
        process.join()
        return f"does not end within {LIMIT_S:.0f} s"
    return f"ended with exit code {process.exitcode}" if process.exitcode else ""
