"""A stand-in for the Profiler in an interpreter beside the main one: all methods exist, none records anything.

pyarrow and numpy may wait for ever when a second interpreter imports them. So what is imported here needs the standard
library only, and the real Profiler is not imported there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from collector.edge import say
from collector.format.schema.errors import RunError


class NoRun:
    """A stand-in for a run that was not recorded: every access raises RunError."""

    def __getattr__(self, name: str) -> Any:
        raise RunError("there is no run: it would have been recorded outside of the main interpreter")


class Profiler:
    """A stand-in that takes the arguments of the real Profiler. Its run cannot be read."""

    def __init__(self, output_path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self.output_path = Path(output_path or "profiler_output")
        self.options = options
        say("nothing is recorded: this is not the main interpreter of the process. The training is not affected.")

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def step(self) -> None: ...

    def analyse(self) -> NoRun:
        return NoRun()

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *raised: object) -> None: ...


def active_profiler() -> None:
    """Return None: this interpreter has no Profiler."""
