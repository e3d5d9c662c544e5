"""The phases of a step, in the order in which a step passes through them.

A phase is exclusive time of the thread that trains: every nanosecond of a step belongs to exactly one phase, so the
phases of a step sum to its duration. Time inside no known call is given to a phase by what stands on both sides of it
(see `collector/sidecar`): before the forward it is preparation, between forward and backward it is the loss.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """`name` is the stem of the column `<name>_ns`; `label` is what a page shows; `meaning` is one sentence."""

    name: str
    label: str
    meaning: str


PHASES: tuple[Phase, ...] = (
    Phase(
        "gap",
        "Gap",
        "Between the start of the step and its first known call, and between micro-batches; in a trace, also where "
        "nothing runs for more than 1 ms before the parameter update.",
    ),
    Phase(
        "data_wait",
        "Data wait",
        "Inside the DataLoader: waiting for the next batch, or making it when there are no workers.",
    ),
    Phase(
        "h2d",
        "Host-to-device / preparation",
        "From the batch being there to the first forward: copies to the device, casts, preparation.",
    ),
    Phase(
        "forward",
        "Forward",
        "From the call of the outermost module to the start of the backward, the loss included.",
    ),
    Phase("backward", "Backward", "Inside the autograd engine."),
    Phase(
        "communication",
        "Communication",
        "The training thread is held in a collective: communication that nothing hides.",
    ),
    Phase(
        "optimizer",
        "Parameter update",
        "Optimizer step, gradient clipping and unscaling before it, and zero_grad.",
    ),
    Phase(
        "tail",
        "Tail",
        "After the last optimizer step: schedulers, logging, checkpoints, until the next step starts.",
    ),
)

PHASE_NAMES: tuple[str, ...] = tuple(phase.name for phase in PHASES)
