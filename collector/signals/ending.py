"""Let a training end well. Stepscope waits at two points at which races in PyTorch could end the job badly.

Both races exist with and without a recording. First, the destructor of a process group joins gloo's threads while it
holds the interpreter lock. A gloo thread that frees its last collective may wait for that lock: then the job hangs for
ever. Second, a daemon thread that returns from an operator while the interpreter ends is ended inside C++, which aborts
the process. docs/concepts/testing.md explains both.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from collector.context.hooks import skip_code
from collector.context.signals import Signal, SignalContext
from collector.edge import log_failure, uncounted, unseen

PATIENCE_S = 1.0
"""Longest wait for gloo's threads, and for a training daemon thread, in seconds."""
PARKED_S = 5.0
"""Seconds for which a training thread sleeps while the interpreter ends."""
UNNAMED_S = 0.05
"""Wait in seconds if gloo's threads cannot be found by name: before PyTorch 2.10, or outside of Linux."""
_LOOK_S = 0.001
_TASKS = "/proc/self/task"
_GLOO = "pt_gloo_runloop"


class EndingSignal(Signal):
    name = "ending"

    def __init__(self) -> None:
        self._trained_by = 0

    def install(self, context: SignalContext) -> None:
        self._context = context
        if not torch.distributed.is_available():
            return
        c10d = torch.distributed.distributed_c10d
        hook = _make_destroy_hook(c10d.destroy_process_group)
        skip_code(hook.__code__)
        for owner in (c10d, torch.distributed):
            context.undo.patch(owner, "destroy_process_group", hook)

    def pause(self) -> None:
        self._trained_by = self._context.log.thread[0]

    def settle(self) -> None:
        """Wait for gloo's threads, and for a daemon thread that trains, before the interpreter ends. Called by the
        thread that ends it.
        """
        wait_for_gloo()
        if _is_daemon(self._trained_by):
            park_daemons()


def wait_for_gloo() -> None:
    """Wait up to `PATIENCE_S` until gloo's threads are idle. They may need the interpreter lock, so it is released.
    Return at once if the job does not use gloo.
    """
    if not _has_gloo():
        return
    deadline = time.monotonic() + PATIENCE_S
    before = _look_at_gloo()
    if not before:
        time.sleep(UNNAMED_S)
    while before and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        now = _look_at_gloo()
        if now == before and all(state != "R" for state, _ in now.values()):
            return
        before = now


def _has_gloo() -> bool:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    return any("gloo" in str(kind) for kind, _ in torch.distributed.distributed_c10d._world.pg_map.values())


def _look_at_gloo() -> dict[str, tuple[str, str]]:
    try:
        tasks = os.listdir(_TASKS)
    except OSError:
        return {}  # another system than Linux
    looks = {task: _look_at_task(task) for task in tasks}
    return {task: look for task, look in looks.items() if look is not None}


def _look_at_task(task: str) -> tuple[str, str] | None:
    try:
        if _read_task(task, "comm").strip() != _GLOO:
            return None
        state, *numbers = _read_task(task, "stat").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    with suppress(OSError):  # not every kernel has it; the numbers above count less often
        return state, _read_task(task, "schedstat")
    return state, " ".join(numbers)


def _read_task(task: str, name: str) -> str:
    with open(f"{_TASKS}/{task}/{name}", encoding="utf-8", errors="replace") as file:
        return file.read()


def _is_daemon(ident: int) -> bool:
    return any(thread.ident == ident and thread.daemon for thread in threading.enumerate())


def park_daemons() -> None:
    """Put other threads to sleep when they begin a backward or an update. Wait up to `PATIENCE_S` until one of them
    sleeps.

    Used only while the interpreter ends, which ends daemon threads. A thread that sleeps in Python then ends cleanly.
    """
    parked = threading.Event()
    main = threading.get_ident()

    def park() -> None:
        if threading.get_ident() != main:
            parked.set()
            time.sleep(PARKED_S)

    with log_failure("a daemon thread is not held at the end"):
        register_optimizer_step_pre_hook(lambda *_: park())
        torch.autograd._engine_run_backward = _park_before(torch.autograd._engine_run_backward, park)
        parked.wait(PATIENCE_S)


def _park_before(original: Callable[..., Any], park: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    @uncounted
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        park()
        return original(*args, **kwargs)

    return _engine_run_backward


def _make_destroy_hook(original: Any) -> Any:
    @functools.wraps(original)
    @uncounted
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        with log_failure("gloo is not waited for"):
            wait_for_gloo()
        with unseen:
            return original(*args, **kwargs)

    return destroy_process_group


SIGNAL = EndingSignal
