"""Accelerate: `Accelerator(log_with="stepscope")` after `import stepscope.accelerate`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import accelerate.tracking
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from collector import Profiler, active_profiler
from collector.session.framework import FrameworkRun


class StepscopeTracker(GeneralTracker):  # type: ignore[misc]
    """Record from `init_trackers` to `end_training`. Values that a script logs are not kept.

    `run_name` is the project of `init_trackers`, and the name of the run in `profiler_output` where no `output_path` is
    given. `options` are those of `stepscope.Profiler`: `init_trackers("project", init_kwargs={"stepscope": {…}})`.
    Where a Profiler records already, nothing is added. Raises OptionError for an option that Profiler does not take.
    """

    name = "stepscope"
    requires_logging_directory = False
    main_process_only = False

    def __init__(
        self, run_name: str = "accelerate", output_path: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self._run_name = run_name
        self._run = FrameworkRun("accelerate", output_path, options)

    @property
    def tracker(self) -> Profiler | None:
        """The Profiler that records this process; None if none does."""
        return active_profiler()

    def start(self) -> None:
        self._run.begin(lambda: self._run_name)

    def finish(self) -> None:
        self._run.end()


def _start_on_all_ranks(init_trackers: Callable[..., None]) -> Callable[..., None]:
    """Return `init_trackers` so that the other ranks record, too: Accelerate starts trackers on the main process only."""

    @functools.wraps(init_trackers)
    def start(self: Any, project_name: str, *args: Any, **kwargs: Any) -> None:
        init_trackers(self, project_name, *args, **kwargs)
        for tracker in () if self.is_main_process else self.log_with:
            if isinstance(tracker, StepscopeTracker):
                tracker.start()
            elif tracker == StepscopeTracker.name:
                given = kwargs.get("init_kwargs", args[1] if len(args) > 1 else None) or {}
                StepscopeTracker(project_name, **given.get(tracker, {})).start()

    return start


def _finish_on_all_ranks(end_training: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(end_training)
    def finish(self: Any) -> None:
        FrameworkRun("accelerate").end()
        end_training(self)

    return finish


Accelerator.init_trackers = _start_on_all_ranks(Accelerator.init_trackers)
Accelerator.end_training = _finish_on_all_ranks(Accelerator.end_training)
# Older versions take an instance only: Accelerator(log_with=StepscopeTracker("name")).
if hasattr(accelerate.tracking, "register_tracker_class"):
    accelerate.tracking.register_tracker_class(StepscopeTracker)
