"""The Profiler: the object with which a training script records. Whatever goes wrong here, the training goes on."""

from __future__ import annotations

import atexit
import html
import logging
import multiprocessing
import multiprocessing.process
import multiprocessing.util
import os
import shlex
import threading
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from collector.edge import Edge, log_failure, say
from collector.environment import DEFAULT_PATH, PATH_VARIABLE
from collector.format.schema.errors import OptionError, SessionError, StepscopeError
from collector.format.schema.facts import UNTOLD
from collector.format.schema.wording import format_number_of
from collector.notebook.run import Run
from collector.options import (
    BY_LEVEL,
    ActivitiesValue,
    Default,
    Level,
    Options,
    WindowValue,
    parse_options,
)
from collector.session.closing import judge_briefly
from collector.session.ending import count_recorded, describe_error, find_last_error, find_missing
from collector.session.recording import Recording
from collector.session.trace_path import split_path, write_trace
from collector.session.tracking import Tracking, open_tracking
from collector.sidecar.coverage_warnings import NO_STEP_FOUND
from collector.trackers import LogTo

if TYPE_CHECKING:
    from collector.session.bucket import Bucket

_log = logging.getLogger("stepscope")
_live: Profiler | None = None

State = Literal["new", "recording", "paused", "stopped", "analysed"]
_DOORS = {
    "profile": "Trainer(profiler=stepscope.lightning.StepscopeProfiler(…))",
    "on_exception": "Trainer(callbacks=[stepscope.lightning.StepscopeCallback(…)])",
    "on_init_end": "Trainer(callbacks=[stepscope.transformers.StepscopeCallback(…)])",
}
"""What to write in place of a Profiler that was given to a framework, by the attribute that the framework asks for last
before it fails."""


class Profiler:
    """Record the training steps of this process to `<output_path>/profiler/`.

    Create it before the training loop and call `analyse()` after it; the loop needs no change. `output_path` is by
    default the environment variable PROFILER_OUTPUT_PATH, else ./profiler_output. A path `x.json` or `x.json.gz` puts
    the run into `x` and a trace for Perfetto into that file. A URL such as s3://bucket/runs/a receives the run during
    the recording, from a folder on this machine. With `start_profile=False`, recording begins at `start()`. Options
    that are not given depend on `level`.

    window: the steps that are recorded in full detail: "auto" (3 steps from step 10), (first step, number of steps),
        or None for none.
    data_pipeline: times of the DataLoader's stages and queues.
    memory: the allocations in detailed windows.
    resources: processor, memory and GPU figures of the host and of this process, sampled.
    stacks: the Python functions that run in each phase and in the DataLoader workers, sampled from another process.
    triggers: whether windows also open by themselves: at a step far longer than usual, or at steps that wait for data.
        They open at most once in five minutes, five times in all.
    level: "info"; "important" for steps only, and everything switched on by name; "debug" for call stacks in detailed
        windows too.
    activities: the contents of detailed windows: "cpu", "device", or both.
    keep_events: whether the event logs and raw traces stay on the disk after the tables are made from them.
    baseline: the path of the run that this run tries to improve; the pages then show whether that run's advice was right.
    log_to: the experiment tracker that rank 0 logs to: "mlflow", "tensorboard", "trackio", "wandb", a SummaryWriter, or a
        function that is called with figures and a step. It gets live means, and the verdict and report at the end.

    Raises OptionError for an option that does not exist or a value that it does not take, SessionError when another
    Profiler is live. A path that cannot be written gives one warning on stderr, and nothing is recorded.
    """

    def __init__(
        self,
        output_path: str | os.PathLike[str] | None = None,
        *,
        start_profile: bool = True,
        window: WindowValue | Default = BY_LEVEL,
        data_pipeline: bool | Default = BY_LEVEL,
        memory: bool | Default = BY_LEVEL,
        resources: bool | Default = BY_LEVEL,
        stacks: bool | Default = BY_LEVEL,
        triggers: bool | Default = BY_LEVEL,
        level: Level | Default = BY_LEVEL,
        activities: ActivitiesValue | Default = BY_LEVEL,
        keep_events: bool | Default = BY_LEVEL,
        baseline: str | os.PathLike[str] | Default = BY_LEVEL,
        log_to: LogTo | Default = BY_LEVEL,
        **misspelt: NoReturn,
    ) -> None:
        # A type checker rejects options that are not in the list above. At run time the error names the nearest option.
        if not isinstance(start_profile, bool):
            raise OptionError(f"start_profile takes True or False, not {start_profile!r}")
        given = {
            "window": window,
            "data_pipeline": data_pipeline,
            "memory": memory,
            "resources": resources,
            "stacks": stacks,
            "triggers": triggers,
            "level": level,
            "activities": activities,
            "keep_events": keep_events,
            "baseline": baseline,
            "log_to": log_to,
        }
        self.options: Options = parse_options({**given, **misspelt})
        self._bucket = _find_bucket(output_path or os.environ.get(PATH_VARIABLE))
        chosen = Path(output_path or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)
        self.output_path, self._trace_path = split_path(chosen) if self._bucket is None else (self._bucket.spool, None)
        self._pid = os.getpid()
        self._state: State = "new"
        self._recording: Recording | None = None
        self._tracking: Tracking | None = None
        self._finalizer: Any = None
        self._inert = _is_inheriting()
        if self._inert:
            return
        self._refuse_second()
        if start_profile:
            self.start()

    if not TYPE_CHECKING:  # to a type checker this class has no other attributes

        def __getattr__(self, name: str) -> NoReturn:
            remedy = f"; in place of Profiler(…) write {_DOORS[name]}" if name in _DOORS else ""
            raise AttributeError(f"Profiler has no attribute {name!r}{remedy}", name=name, obj=self) from None

    def start(self) -> None:
        """Begin recording, or go on after stop(). SessionError if recording is on or paused, or the run was
        analysed.
        """
        if self._is_elsewhere():
            return
        if self._state == "analysed":
            raise SessionError(
                "start() after analyse(): this run is closed; make a new Profiler with another output_path"
            )
        if self._state in ("recording", "paused"):
            raise SessionError("start() while recording: call stop() first")
        if self._state == "new":
            self._refuse_second()
            self._open()
        self._state = "recording"
        if self._recording is not None:
            self._guard(self._recording.resume)

    def stop(self) -> None:
        """End recording until the next start(). Raises SessionError if recording is neither on nor paused."""
        if self._is_elsewhere():
            return
        if self._state not in ("recording", "paused"):
            raise SessionError(f"stop() before start(): this Profiler is {self._state}")
        self._state = "stopped"
        if self._recording is not None:
            self._guard(self._recording.pause)

    def pause(self) -> None:
        """Interrupt recording until resume(). Repeated calls are harmless."""
        if self._is_elsewhere() or self._state != "recording":
            return
        self._state = "paused"
        if self._recording is not None:
            self._guard(self._recording.pause)

    def resume(self) -> None:
        """Go on recording after pause(). Repeated calls are harmless."""
        if self._is_elsewhere() or self._state != "paused":
            return
        self._state = "recording"
        if self._recording is not None:
            self._guard(self._recording.resume)

    def step(self) -> None:
        """Mark the end of a training step. From the first call on, only such calls end steps."""
        if not self._is_elsewhere() and self._state == "recording" and self._recording is not None:
            self._guard(self._recording.mark_step)

    def analyse(self) -> Run:
        """End the run, wait until its tables are written, and return the run. A second call returns the same run.

        Raises SessionError if recording was never started. If nothing could be recorded, the methods of the returned
        run raise RunError.
        """
        if self._is_elsewhere():
            return Run(self.output_path)
        if self._state == "new":
            raise SessionError("analyse() before start(): nothing was recorded; call start() first")
        if self._state == "analysed":
            _log.warning("stepscope: analyse() was called before; this is the same run")
            return self._open_run()
        self._state = "analysed"
        if self._recording is not None:
            self._guard(self._finish)
        return self._open_run()

    def __repr__(self) -> str:
        steps = 0 if self._recording is None else self._recording.context.steps.ended
        return f"Profiler({str(self.output_path)!r}, {self._state}, {format_number_of(steps, 'step')})"

    def _repr_html_(self) -> str:
        is_over = self._state == "analysed"
        return self._open_run()._repr_html_() if is_over else f"<code>{html.escape(repr(self))}</code>"

    def _finish(self) -> None:
        assert self._recording is not None
        problem = self._recording.finish()
        self._forget()
        if problem:
            say(f"the run in {self.output_path} is not complete: {problem}. The training is not affected.")
            return
        self._guard(self._write_trace)
        self._guard(self._tell_result)

    def _forget(self) -> None:
        """Drop all our references to this Profiler, so that it is freed once the script drops its own.

        A hyperparameter sweep may make hundreds of Profilers.
        """
        global _live
        self._stop_tracking()
        atexit.unregister(self._finish_at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        if _live is self:
            _live = None

    def _open_run(self) -> Run:
        # The script may have changed its working directory meanwhile.
        return Run(self.output_path if self._recording is None else self._recording.place.run_path)

    def _write_trace(self) -> None:
        if self._trace_path is not None and self._recording is not None:
            self._trace_path = write_trace(self._open_run(), self._recording.place.rank, self._trace_path)

    def _tell_result(self) -> None:
        """Print on stderr where the run is, its upload and its verdict. Ranks other than 0 print the upload only."""
        is_first = self._recording is not None and self._recording.place.rank == 0
        if is_first:
            self._tell_where(count_recorded(self._open_run().rank(0)))
        self._guard(self._tell_upload)
        if is_first:
            self._tell_verdict()

    def _tell_where(self, steps: str) -> None:
        path = self._find_shown_path()
        where = f"stepscope serve {shlex.quote(str(path.parent))}"
        say(f"recorded {steps} in {path}{self._name_trace()}; to look at them: {where}")
        self._tell_losses()

    def _find_shown_path(self) -> Path:
        return self.output_path

    def _tell_verdict(self) -> None:
        if self._tracking is not None:
            self._tracking.conclude(self._judge)
        else:
            self._judge()

    def _judge(self, report: Path | None = None) -> list[str]:
        """Print the verdict on stderr and return its lines; write the report to `report`, if that is a path."""
        assert self._recording is not None
        if self._recording.ended_by not in ("", UNTOLD) or self.options.level == "important":
            return []  # whoever ended it does not wait, and has another trouble
        run = self._open_run()
        if not run.rank(0).count_steps():
            return []
        world_size = run.manifest.world_size
        is_whole = self._tracking is not None and self._tracking.await_ranks(world_size)
        lines = judge_briefly(run.path, 1 if is_whole else world_size, report)
        for line in lines:
            say(line)
        return lines

    def _stop_tracking(self) -> None:
        if self._tracking is not None:
            self._tracking.stop()

    def _end_before_tracker(self) -> None:
        """End before the tracker's library ends the user's run: exit handlers run in the reverse order."""
        if threading.current_thread() is threading.main_thread():
            atexit.unregister(self._finish_at_exit)
            atexit.register(self._finish_at_exit)

    def _name_trace(self) -> str:
        written = self._trace_path is not None and self._trace_path.is_file()
        return f" and as a trace in {self._trace_path}" if written else ""

    def _tell_upload(self) -> None:
        """Print the run's address at its URL, or the files still missing there. One rank of each host prints this."""
        if self._bucket is not None and self._recording is not None:
            from collector.session.bucket import speaks_for_host

            text = self._bucket.describe_end()
            if text and speaks_for_host(self._recording.place.rank):
                say(text)

    def _tell_losses(self) -> None:
        with log_failure("what was lost is not known", level=logging.DEBUG):
            for loss in find_missing(self._open_run().rank(0)):
                say(loss)

    def __enter__(self) -> Profiler:
        if not self._is_elsewhere() and self._state == "new":
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_elsewhere() and self._state != "analysed":
            self._note_end(error)
            self.analyse()

    def _refuse_second(self) -> None:
        if _live is not None and _live is not self and _live._is_live() and not _live._give_way(self.output_path):
            raise SessionError(
                f"a Profiler is already recording to {_live.output_path}; call its analyse() before making another "
                "(if you no longer hold it: stepscope.active_profiler().analyse())"
            )

    def _give_way(self, to: Path) -> bool:
        """Return whether this Profiler has ended itself for a new one that records to `to`. Only that of
        `stepscope run` does so."""
        return False

    def _open(self) -> None:
        global _live
        _live = self
        atexit.register(self._finish_at_exit)
        # Child processes of multiprocessing end through os._exit, which skips atexit.
        self._finalizer = multiprocessing.util.Finalize(None, self._finish_at_exit, exitpriority=10)
        with Edge(self._stay_silent):
            self._recording = Recording(self.output_path, self.options)
            self._tracking = open_tracking(self._recording, self._end_before_tracker)
            if self._recording.place.set_aside is not None:
                place = self._recording.place
                which = f"attempt {place.continued} of this job" if place.continued else "the earlier run"
                say(f"{which} in {self.output_path} was moved to {place.set_aside}")
            if self._bucket is not None:
                self._bucket.start(self._recording.place.rank_folder)

    def _stay_silent(self, error: Exception) -> None:
        self._fall_silent(str(error) if isinstance(error, StepscopeError) else repr(error))
        _log.debug("stepscope: could not start", exc_info=error)

    def _fall_silent(self, reason: str) -> None:
        say(f"nothing is recorded: {reason}. The training is not affected.")

    def _guard(self, action: Any) -> None:
        def fail(error: Exception) -> None:
            self._fall_silent(f"{getattr(action, '__name__', 'a step')} failed: {error!r}")
            _log.debug("stepscope: failed", exc_info=error)

        with Edge(fail):
            action()

    def _is_live(self) -> bool:
        running = self._state in ("recording", "paused", "stopped") and self._recording is not None
        return running and self._pid == os.getpid()

    def _is_elsewhere(self) -> bool:
        """Return whether this object must do nothing, because the process is a child of the one that records: forked,
        or spawned so that it reruns the script."""
        return self._inert or self._pid != os.getpid()

    def _finish_at_exit(self) -> None:
        if self._is_elsewhere() or self._state in ("analysed", "new"):
            return
        self._note_end(find_last_error(), UNTOLD)
        self._state = "analysed"
        if self._recording is not None:
            self._guard(self._recording.settle)
            self._stop_tracking()
            if self._tracking is not None and self._tracking.is_found and self._recording.ended_by == UNTOLD:
                self._guard(self._finish)  # the tracker waits for figures of the whole run
                return
            self._guard(self._recording.leave)
            if self._recording.place.rank == 0:
                self._tell_where(self._recording.count_steps())
                if self._recording.found_nothing:
                    say(NO_STEP_FOUND)
            self._guard(self._tell_upload)

    def _note_end(self, error: BaseException | None, otherwise: str = "") -> None:
        """Store the reason for the training's end: the description of `error`, or `otherwise` if there is none. After
        stop() no reason is stored.
        """
        if self._recording is not None and self._state in ("recording", "paused"):
            # Str() of a user's exception may raise anything.
            with log_failure("it is not known what ended the training"):
                self._recording.ended_by = describe_error(error) or otherwise
            if error is not None:
                self._recording.explain(error)


def _find_bucket(output_path: str | os.PathLike[str] | None) -> Bucket | None:
    """Return the bucket of a run with a URL, None for a run that stays on this machine."""
    if not isinstance(output_path, str) or "://" not in output_path:
        return None
    from collector.session.bucket import Bucket
    from collector.storage.urls import is_url

    return Bucket(output_path) if is_url(output_path) else None


def active_profiler() -> Profiler | None:
    """Return the Profiler of this process that is not analysed yet; None if there is none.

    A notebook needs this after a cell has lost the variable of its Profiler.
    """
    return _live if _live is not None and _live._is_live() else None


def _is_inheriting() -> bool:
    """Return whether multiprocessing is running the script again in a spawned child."""
    return bool(getattr(multiprocessing.process.current_process(), "_inheriting", False))
