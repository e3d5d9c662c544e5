"""The door that stands in a script: what a job does before and behind its loop, where ENDINGS_DOOR names this module."""

from __future__ import annotations

import json
import os

from collector import Profiler

_made: list[Profiler] = []


def begin() -> None:
    _made.append(Profiler(os.environ["ENDINGS_RUN"], **json.loads(os.environ.get("PROFILER_OPTIONS", "{}"))))


def finish() -> None:
    _made.pop().analyse()
