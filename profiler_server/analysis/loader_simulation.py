"""The simulator of a DataLoader and its loop. It lies in `collector/estimating/simulation.py`: `collector.estimate` needs it too."""

from collector.estimating.simulation import (
    MAX_STEPS,
    WARM_UP_STEPS,
    Job,
    LoopModel,
    Simulated,
    find_workers,
    predict_step_ns,
    simulate,
)

__all__ = [
    "MAX_STEPS",
    "WARM_UP_STEPS",
    "Job",
    "LoopModel",
    "Simulated",
    "find_workers",
    "predict_step_ns",
    "simulate",
]
