"""Other Python threads of the training process: they share one interpreter with the thread that trains.

Only their numbers are noted, after some steps; the sidecar looks how long each was on a processor.
"""

from __future__ import annotations

import threading

from collector.context.milestones import Milestones
from collector.context.signals import SignalContext

MOST_THREADS = 16


class ThreadsSignal:
    name = "threads"
    option = "resources"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._milestones = Milestones(context, self.name, self._note)

    def remove(self) -> None:
        self._milestones.finish()

    def _note(self) -> None:
        if not self._context.log.is_mine():
            return  # at the end no thread trains any more
        training = threading.get_ident()
        found = [
            {"id": thread.native_id, "name": thread.name[:100]}
            for thread in threading.enumerate()
            if thread.ident != training and thread.native_id is not None
        ][:MOST_THREADS]
        if found and self._context.notes.facts.get("python_threads") != found:
            self._context.add_fact("python_threads", found)


SIGNAL = ThreadsSignal
