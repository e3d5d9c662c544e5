"""The phases of a step. The phases of format version 1 come in the order in which a step passes through them.

A phase is exclusive time of the training thread: every nanosecond of a step belongs to exactly one phase, so the phases
of a step sum to its duration. Time outside known calls gets its phase from the calls before and after it (see
`collector/sidecar`). Before the forward, such time is preparation; between forward and backward, it is the loss. A
forward without gradients has no loss: the time after it, in which a loop uses the model's output, is the gap.

Each phase is one row here; code, pages and the viewer derive everything from the row. A new phase names in `since` the
format version that introduced it: older files have no column for the phase and read as zero time. A new phase is
appended at the end, wherever it falls in a step: the index of a phase is its code in event logs, and a newer version
may recover the log of an older one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

PALETTE: Mapping[str, tuple[str, str]] = {
    "compute": ("#111eae", "#2f47fa"),
    "backward": ("#6f7ff5", "#9db0ff"),
    "communication": ("#d37860", "#b93a0a"),
    "overlap": ("#5a1169", "#d87aed"),
    "copy": ("#0d939c", "#b9edef"),
    "data": ("#b68e0f", "#fdd93b"),
    "host": ("#3d3f45", "#616570"),
    "optimizer": ("#265b02", "#5fe68b"),
    "idle": ("#868d95", "#7d858f"),
    "worse": ("#c4161c", "#ff6b6b"),
}
"""Class -> its colour on a light and on a dark background; `tokens.css` has the same values."""


Bound = Literal["input", "transfer", "communication", "overhead", "compute"]
LineGroup = Literal["input", "compute", "update"]


@dataclass(frozen=True)
class Phase:
    """A phase. `name` is the stem of the column `<name>_ns`, `label` the name on pages, `meaning` a sentence for
    readers.

    `color` is a class of PALETTE. `bound` is the bottleneck of a step in which this phase is the longest. `group` is
    the per-step chart that draws the phase. `work` is what a step does in it, for sentences. `since` is the format
    version that introduced the phase.
    """

    name: str
    label: str
    meaning: str
    color: str
    bound: Bound
    group: LineGroup
    work: str = ""
    since: int = 1

    @property
    def column(self) -> str:
        """The phase's column in the table `steps`."""
        return f"{self.name}_ns"


PHASES: tuple[Phase, ...] = (
    Phase(
        "gap",
        "Gap",
        "Between the start of the step and its first known call, between micro-batches, and after a forward without "
        "gradients until the next forward; in a trace, also where nothing runs for more than 1 ms before the parameter "
        "update.",
        color="idle",
        bound="overhead",
        group="update",
    ),
    Phase(
        "data_wait",
        "Data wait",
        "Inside the DataLoader: waiting for the next batch, or making it when there are no workers.",
        color="data",
        bound="input",
        group="input",
        work="loading",
    ),
    Phase(
        "h2d",
        "Host-to-device / preparation",
        "From the batch being there to the first forward: copies to the device, casts, preparation.",
        color="copy",
        bound="transfer",
        group="input",
        work="preparing the batch",
    ),
    Phase(
        "forward",
        "Forward",
        "From the call of the outermost module to the start of the backward, the loss included.",
        color="compute",
        bound="compute",
        group="compute",
        work="forward",
    ),
    Phase(
        "backward",
        "Backward",
        "Inside the autograd engine.",
        color="backward",
        bound="compute",
        group="compute",
        work="backward",
    ),
    Phase(
        "communication",
        "Communication",
        "The recorded thread is held in a collective: communication that nothing hides.",
        color="communication",
        bound="communication",
        group="update",
    ),
    Phase(
        "optimizer",
        "Parameter update",
        "Optimizer step, gradient clipping and unscaling before it, and zero_grad.",
        color="optimizer",
        bound="compute",
        group="update",
        work="update",
    ),
    Phase(
        "tail",
        "Tail",
        "After the last optimizer step: schedulers, logging, checkpoints, until the next step starts.",
        color="host",
        bound="overhead",
        group="update",
    ),
)

_OF_INFERENCE: Mapping[str, str] = {
    "gap": "Between the start and the first known call, and between calls of models.",
    "forward": "From the call of the outermost module to its end.",
    "tail": "After the last forward: what the script does with the result, until the next batch is asked for.",
}
"""Meanings of phases in a run that only infers."""
_PASSED: Mapping[str, tuple[str, ...]] = {
    "batch": ("gap", "data_wait", "h2d", "forward", "communication", "tail"),
    "call": ("forward", "communication"),
}
"""Phases that a batch or a call of inference passes through."""


def list_phases(noun: str, present: Collection[str] = ()) -> tuple[Phase, ...]:
    """Return the phases that a step called `noun` passes through, and those that are `present` all the same."""
    if noun not in _PASSED:
        return PHASES
    return tuple(
        replace(phase, meaning=_OF_INFERENCE.get(phase.name, phase.meaning))
        for phase in PHASES
        if phase.name in _PASSED[noun] or phase.name in present
    )


def list_work(noun: str, bounds: Collection[Bound]) -> tuple[str, ...]:
    """Return what a step called `noun` does in its phases with one of `bounds`, for sentences: `forward`, `update`."""
    return tuple(phase.work for phase in list_phases(noun) if phase.bound in bounds)


PHASE_NAMES: tuple[str, ...] = tuple(phase.name for phase in PHASES)
PHASE_LABELS: dict[str, str] = {phase.name: phase.label for phase in PHASES}
PHASE_COLORS: dict[str, str] = {phase.name: phase.color for phase in PHASES}
PHASE_PLACES: dict[str, int] = {name: place for place, name in enumerate(PHASE_NAMES)}
"""Name -> index in PHASES: the phase's code in event logs, which never changes."""
GAP, DATA_WAIT, H2D, FORWARD, BACKWARD, COMMUNICATION, OPTIMIZER, TAIL, *_LATER = range(len(PHASES))


def read_phase(value: object) -> str:
    """Return the value if it is the name of a phase, else "". The value comes from a file and may be anything."""
    return value if isinstance(value, str) and value in PHASE_LABELS else ""


def list_bound_by(bound: Bound) -> tuple[str, ...]:
    """Return the names of the phases with this `bound`: if one is the longest of a step, that is the bottleneck."""
    return tuple(phase.name for phase in PHASES if phase.bound == bound)


def list_group(group: LineGroup) -> tuple[str, ...]:
    """Return the names of the phases that the per-step chart `group` draws, in the order of PHASES."""
    return tuple(phase.name for phase in PHASES if phase.group == group)


IN_MODEL = list_group("compute")
COMPUTING = list_bound_by("compute")
WAITING = (*list_bound_by("input"), *list_bound_by("communication"))
OUTSIDE = list_bound_by("overhead")
"""The phases outside of every known call."""
