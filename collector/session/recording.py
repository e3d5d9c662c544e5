"""One recording of one rank: switch the signals on, start the sidecar, and undo all patches at the end."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

import psutil

from collector.context.signals import SignalContext
from collector.edge import log_failure
from collector.environment import count_usable_cores, find_rank, find_versions
from collector.format.run import Run
from collector.format.schema.errors import OutputError
from collector.format.schema.facts import UNTOLD
from collector.format.schema.wording import format_number_of
from collector.notes import WORDS_FILE, Notes, write_notes
from collector.options import Options
from collector.plugins import find_plugins
from collector.ring.clock import Clock
from collector.ring.codes import PAUSE, RESUME, STEP_MARK
from collector.ring.words import WordLog
from collector.session.beside import Beside
from collector.session.ending import NO_STEPS, count_recorded, spell_end
from collector.session.place import Launch, Place, abandon_place, claim_place, find_job, find_launch_id
from collector.session.rehearsal import CostSampler
from collector.session.start_up import describe_start, note_recorded, timing_torch
from collector.sidecar.coverage_warnings import spell_remedy
from collector.sidecar.terminal import describe_terminal

_NO_THREAD = -2
_SWITCHES = ("data_pipeline", "memory", "resources", "stacks", "triggers")
_log = logging.getLogger("stepscope")


class Recording:
    """The recording from the first start() to analyse(). Making it raises OutputError if the run's folder cannot be
    written.

    Without a sidecar, finish() writes the tables in this process. `ended_by` is the reason for the training's end, ""
    if the script's own analyse() ended it.
    """

    def __init__(self, output_path: Path, options: Options, *, with_sidecar: bool = True) -> None:
        began_unix_ns = time.time_ns()
        rank, world_size = find_rank()
        (torch, cuda), (job, requeues, restarts) = find_versions(), find_job()
        launch = Launch(rank, world_size, find_launch_id(), torch, cuda, options.as_dict(), job, requeues, restarts)
        self.place = claim_place(output_path, launch)
        self.options = options
        self.ended_by = ""
        notes = _build_notes(self.place, options)
        notes.cpu_count, notes.usable_cores = os.cpu_count(), count_usable_cores()
        events = self.place.rank_folder / "events"
        try:
            self.log = WordLog(events / WORDS_FILE, shared=with_sidecar)
            write_notes(notes, self.place.rank_folder)
        except OSError as error:
            abandon_place(self.place)
            remedy = spell_remedy(error)
            raise OutputError(f"{events} cannot be written: {error.strerror or error}. {remedy}") from None
        self.context = SignalContext(self.place.rank_folder, options, self.log, notes)
        self._beside = Beside(self.place.rank_folder, self.log)
        self._signals: list[Any] = []
        self._sampler: CostSampler | None = None
        self._has_tables = False
        self._trained_on = self.log.thread[0]
        self.log.thread[0] = _NO_THREAD
        if with_sidecar:
            self._start_sidecar()
        with timing_torch():
            self._install_signals()
        self.context.add_fact("start_up", describe_start(began_unix_ns))

    def resume(self) -> None:
        """Record from now on, on the thread that trained before the pause.

        The first call has no pause before it: it records the thread that made this object.
        """
        self.log.thread[0] = self._trained_on
        self.log.write(RESUME, time.perf_counter_ns())
        self.log.mark_head(self.context.steps.ended)
        self._tell_signals("resume")

    def pause(self) -> None:
        """Stop recording until `resume`. The current step counts if its update has run. Repeated calls are harmless."""
        if self.log.thread[0] == _NO_THREAD:
            return
        self.context.steps.finish()
        self._tell_signals("pause")
        self._trained_on = self.log.thread[0]
        self.log.thread[0] = _NO_THREAD
        self.log.write(PAUSE, time.perf_counter_ns())
        self.log.mark_head(self.context.steps.ended)

    def mark_step(self) -> None:
        """End the step, because the script called `step()`. A call on another than the training thread is ignored."""
        if not self.log.is_mine() and not self.context.adopt_thread():
            return
        self.log.write(STEP_MARK, time.perf_counter_ns())
        self.context.steps.mark()

    def settle(self) -> None:
        """Stop recording at the interpreter's end, and tell the signals of it. `leave` or `finish` must follow."""
        self.pause()  # while the threads that train still move: one of them may have a window to close
        self._tell_signals("settle")

    def explain(self, error: BaseException) -> None:
        """Let the signals note what they know of the error that ends the training."""
        self._tell_signals("explain", error)

    def finish(self) -> str:
        """End the recording, and wait until the tables are written; write them in this process if the sidecar is gone.

        Return the reason if tables are missing, else "".
        """
        self._end()
        try:
            reason = self._beside.finish()
            self._has_tables = not reason
            return reason
        finally:
            self.log.close()

    def leave(self) -> None:
        """End the recording without waiting: undo all patches, and let the sidecar write the rest of the tables."""
        self._end()
        self._beside.leave()

    def _end(self) -> None:
        if self.context.notes.finished:
            return
        self.pause()
        if self.context.steps.ended:
            note_recorded()
        if self.ended_by:
            self.context.add_fact("ended_by", self.ended_by)
            self.context.warn("ended_by", spell_end(self.ended_by, self.context.steps.ended))
        for signal in reversed(self._signals):
            with self.context.shielded(signal.name):
                signal.remove()
        self._signals.clear()
        self.context.undo.restore()
        self._end_sampling()
        self.context.notes.finished = "complete"
        self.context.save_notes()
        self.log.finish()

    def withdraw(self) -> None:
        """Make room for another recording: `finish` this one, or remove it with its folder if it has no step yet."""
        if self.context.steps.ended:
            self.finish()
            return
        self._end()
        self._beside.kill()
        self.log.close()
        abandon_place(self.place)

    def count_steps(self) -> str:
        """Return the number of ended training steps in words. Without steps, return the number of batches of inference
        if the tables are written, else NO_STEPS."""
        steps = self.context.steps.ended
        if steps:
            return format_number_of(steps, "step")
        return count_recorded(Run(self.place.run_path).rank(self.place.rank)) if self._has_tables else NO_STEPS

    @property
    def found_nothing(self) -> bool:
        """Whether the script ended without an error and had neither a training step nor a batch."""
        return self.ended_by in ("", UNTOLD) and not (
            self.context.steps.ended or self.context.steps.fetches or self.context.has_inferred
        )

    def _start_sidecar(self) -> None:
        try:
            self._beside.start()
            self.context.recorder_pid = self._beside.pid
            self.context.occasions.append(self._look_after_sidecar)
            self.context.calls.occasions.append(self._look_after_sidecar)
        except OSError as error:
            self.context.warn(
                "no_sidecar", f"The recorder process could not be started ({error}); analyse() does its work."
            )

    def _look_after_sidecar(self, step: int) -> None:
        said = self._beside.look_after()
        self.context.recorder_pid = self._beside.pid
        if said:
            self.context.warn("sidecar_ended", said)

    def _install_signals(self) -> None:
        from collector import signals as room

        for name in _SWITCHES:
            if not self.options.is_on(name):
                self.context.notes.signals[name] = _describe_switch(name, self.options)
        kinds = find_plugins(room, "SIGNAL")
        self._begin_sampling(kinds)
        for kind in kinds:
            self._install_signal(kind)
        # Wall time is the training's: our own start, which may import torch for seconds, is none of it.
        self.context.notes.started_unix_ns = time.time_ns()
        self.context.save_notes()

    def _begin_sampling(self, kinds: tuple[Any, ...]) -> None:
        if self._sampler is not None:
            return
        with log_failure("the cost of the hooks cannot be timed"):  # the recording goes on without this value
            self._sampler = CostSampler(kinds, self.context)
            self.context.occasions.append(self._sample_cost)
            self.context.calls.occasions.append(self._sample_cost)

    def _sample_cost(self, step: int) -> None:
        if self._sampler is not None and self._sampler.sample(step):
            self.context.notes.overhead = self._sampler.describe()
            self.context.save_notes()

    def _end_sampling(self) -> None:
        if self._sampler is not None:
            self.context.notes.overhead = self._sampler.describe()
            self._sampler.close()
            self._sampler = None

    def _install_signal(self, kind: Any) -> None:
        name, option = kind.name, kind.option
        states = self.context.notes.signals
        if not self.options.is_on(option):
            states[name] = _describe_switch(option, self.options)
            return
        with self.context.shielded(name):
            signal = kind()
            states[name] = {"state": "on", "reason": ""}
            signal.install(self.context)
            self._signals.append(signal)

    def _tell_signals(self, change: str, *about: BaseException) -> None:
        """Call the method `change` ("pause", "resume", "settle" or "explain") of every signal that has this method."""
        for signal in self._signals:
            with self.context.shielded(signal.name):
                getattr(signal, change, lambda *about: None)(*about)


def _build_notes(place: Place, options: Options) -> Notes:
    clock = Clock.start(place.epoch_unix_ns)
    process = psutil.Process()
    return Notes(
        rank=place.rank,
        pid=os.getpid(),
        pid_started=process.create_time(),
        host=socket.gethostname(),
        started_unix_ns=clock.unix_ns,
        epoch_unix_ns=clock.epoch_unix_ns,
        perf_ns=clock.perf_ns,
        unix_ns=clock.unix_ns,
        options=options.as_dict(),
        points={"backward_end": "autograd engine", "point_source": "automatic"},
        terminal=describe_terminal(),
    )


def _describe_switch(option: str, options: Options) -> dict[str, str]:
    by_level = ' by level="important"' if options.level == "important" else ""
    return {"state": "off", "reason": f"The option {option} of the Profiler was off{by_level}."}
