"""The time to the first step by cause. Times are ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "before", "imports", "recording", "data", "weights", "setup", "compile", "first_batch", "script", "unseen", "step"
]

CAUSES: dict[Cause, tuple[str, str]] = {
    "before": ("Before the recording", "The start of Python and what the script did before it made the Profiler."),
    "imports": ("Imports", "Code of modules that were imported for the first time."),
    "recording": ("Stepscope", "The start of the recording itself."),
    "data": ("Data set", "Functions of data sets, and of libraries that read and list files of data."),
    "weights": ("Model", "Building the model, downloading and loading its weights, moving it to the device."),
    "setup": ("Device and process group", "The first use of the device, and meeting the other ranks."),
    "compile": ("Compilation", "torch.compile, TorchScript and Triton."),
    "first_batch": ("First batch", "The start of the DataLoader's workers, and the wait for the first batch."),
    "script": ("The script's own", "What none of the other causes explains."),
    "unseen": ("Not sampled", "The time before the first sample of the stack, or all of it where none was read."),
    "step": ("Rest of the first {noun}", "What the first {noun} takes beside its batch and compilations."),
}
"""The causes in the order of pages, each with its label and meaning, whose fields are those of any text."""


@dataclass(frozen=True)
class StartPart:
    """A part of the time to the first step. It lies between `low_ns` and `high_ns` in 95 of 100 runs; the three are
    equal where the time was measured and not sampled.

    `place` is the user's line with most samples of the part, such as train.py:12, and `line` its text; "" if unknown.
    """

    cause: Cause
    duration_ns: int
    low_ns: int
    high_ns: int
    place: str = ""
    line: str = ""

    @property
    def label(self) -> str:
        return CAUSES[self.cause][0]


@dataclass(frozen=True)
class StartUp:
    """The time from the start to the end of the first step. The parts sum to `total_ns`, in the order of `CAUSES`.

    It counts from the start of the process if `is_process`, else from the begin of the recording. `samples` is the
    number of stacks that the sampled parts follow from. `recorded_ns` is the recorded time, and the time before it.
    """

    total_ns: int
    is_process: bool
    parts: tuple[StartPart, ...]
    samples: int
    recorded_ns: int
    noun: str = "step"
