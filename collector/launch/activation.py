"""Begin recording when the script imports torch, or when it marks a range or a stage without torch.

An earlier start would harm. A script may set variables that torch reads during its import (CUDA_VISIBLE_DEVICES,
OMP_NUM_THREADS), and a script without torch must not wait seconds for the import.
"""

from __future__ import annotations

import atexit
import json
import logging
import multiprocessing.process
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.context.hooks import ImportWatch
from collector.edge import Edge, log_failure, say
from collector.environment import DEFAULT_PATH, PATH_VARIABLE, is_main_interpreter
from collector.marks import outlet as outlets
from collector.session import refused, start_up
from collector.storage.urls import find_spool, is_url

OPTIONS_VARIABLE = "PROFILER_OPTIONS"
KINETO_LEVEL_VARIABLE = "KINETO_LOG_LEVEL"
ERRORS_ONLY = "99"
"""At any lower level, Kineto prints its own lines whenever a window opens or closes."""
_LONGEST_LINE = 600
_is_active = False
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class Settings:
    """The output path and the valid options of a recording. `output_path` is local, even if the run goes to a `url`."""

    output_path: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""

    @property
    def target(self) -> str:
        """The output path for a Profiler: the URL if there is one, else the local path."""
        return self.url or str(self.output_path)


def read_settings(output: str | None, options: str | None, environment: Mapping[str, str]) -> Settings:
    """Read the settings from `output` and `options` of the command line; those that are None come from the environment.

    An invalid option is reported and left out; the others are kept. A typing error must neither end a training of weeks
    nor leave it unrecorded.
    """
    place = output or environment.get(PATH_VARIABLE) or DEFAULT_PATH
    url = place if is_url(place) else ""
    path = find_spool(url) if url else Path(place).expanduser().absolute()
    where = "--options" if options is not None else OPTIONS_VARIABLE
    text = options if options is not None else environment.get(OPTIONS_VARIABLE, "")
    return Settings(path, _parse(text, where), url)


def _parse(text: str, where: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        _report(f'{where} is not JSON ({error}); the default options are used. Example: {{"window": [100, 5]}}')
        return {}
    if not isinstance(given, dict):
        _report(f'{where} must be a JSON object, such as {{"window": [100, 5]}}; the default options are used')
        return {}
    return {name: value for name, value in given.items() if _is_understood(name, value, where)}


def _is_understood(name: str, value: Any, where: str) -> bool:
    from collector.format.schema.errors import OptionError
    from collector.options import parse_options

    try:
        parse_options({name: value})
    except OptionError as error:
        _report(f"{where}: {error} (this option is left out, the training runs on)")
        return False
    return True


def activate(settings: Settings) -> ImportWatch:
    """Record this process once it imports torch, or marks a range or a stage. The run goes to `settings.target`. Return
    the watch for the import of torch.
    """
    global _is_active
    _is_active = True
    os.environ.setdefault(KINETO_LEVEL_VARIABLE, ERRORS_ONLY)
    # A Profiler that the script makes without a path writes where the user said.
    os.environ[PATH_VARIABLE] = settings.target
    owner = os.getpid()

    def begin() -> None:
        outlets.stop_waiting()
        watch.stop()
        # A forked child inherits the watch, but the run is that of its parent.
        if os.getpid() == owner:
            start_up.note_torch(*watch.span_unix_ns)
            _start(settings)

    watch = ImportWatch("torch", begin)
    sys.meta_path.insert(0, watch)
    outlets.await_mark(begin)
    atexit.register(_say_if_unused, watch)
    return watch


def activate_from_environment() -> None:
    """In a script started by plain `python`, record as `activate` does if PROFILER_OUTPUT_PATH is set and nothing
    records yet; at once if torch is imported already."""
    inherits = getattr(multiprocessing.process.current_process(), "_inheriting", False)
    if _is_active or inherits or not os.environ.get(PATH_VARIABLE):
        return
    if not is_main_interpreter():
        refused.Profiler()
        return
    settings = read_settings(None, None, os.environ)
    if "torch" not in sys.modules:
        activate(settings)
        return
    os.environ.setdefault(KINETO_LEVEL_VARIABLE, ERRORS_ONLY)
    _start(settings)


def _start(settings: Settings) -> None:
    with Edge(_say_nothing_is_recorded):
        from collector.launch.profiler import LaunchedProfiler

        LaunchedProfiler(settings.target, **settings.options)
    with log_failure("the processes of the benchmark do not wait for each other"):
        _wait_for_others()


def _wait_for_others() -> None:
    """In a benchmark, wait for its other processes: now, and again at the first mark of a range or stage."""
    from collector.launch.barrier import BEGIN, MARK, find_barrier, hold

    barrier = find_barrier()
    if barrier is not None:
        hold(barrier, BEGIN)
        outlets.await_mark(lambda: hold(barrier, MARK))


def _say_nothing_is_recorded(error: Exception) -> None:
    _report(f"nothing is recorded: {error!r}. The training is not affected")
    _log.debug("stepscope: could not start", exc_info=error)


def _say_if_unused(watch: ImportWatch) -> None:
    if watch.is_waiting and os.getpid() == watch.pid:
        _report("nothing was recorded: the script neither imported torch nor marked a range")


def _report(text: str) -> None:
    """Print a message in one line, shortened if it quotes long input."""
    line = " ".join(text.split())
    short = line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}"
    say(short)
