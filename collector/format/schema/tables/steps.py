"""Declares tables on steps: their times by phase, the single stretches of phases, and device times of phases."""

from collector.format.phases import COMPUTING, PHASE_NAMES, PHASES
from collector.format.schema.columns import Column, Shown, Table, category
from collector.format.words import STEP_KINDS

_STEPS = Table(
    "steps",
    "One row per step, per evaluation batch and per stretch outside of steps, in time order without a hole.",
    (
        Column("index", "int64", "Row number, from 0."),
        Column("step", "int64", "Training step, from 1; for other kinds the last training step before it, 0 for none."),
        category(
            "kind",
            "train, eval, startup (before the first step) or rest (after the last, or between loops).",
            Shown("kind", words=STEP_KINDS),
        ),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Length; the phases sum to it exactly."),
        *(Column(phase.column, "int64", phase.meaning, since=phase.since) for phase in PHASES),
        Column(
            "epoch",
            "int32",
            "How often the loader had been started when the step fetched its batch, from 1.",
            nullable=True,
        ),
        Column("loader", "int32", "DataLoader the batch came from, by order of first use.", nullable=True),
        Column("batch", "int64", "Number of the first batch within the epoch, from 0.", nullable=True),
        Column("fetches", "int32", "Batches fetched in the step."),
        Column("forwards", "int32", "Calls of an outermost module."),
        Column("no_grad_forwards", "int32", "Those of them with gradients off, such as validation.", nullable=True),
        Column("backwards", "int32", "Calls of the autograd engine."),
        Column("optimizer_steps", "int32", "Optimizer steps, those included that GradScaler skipped."),
        Column("skipped_updates", "int32", "Updates that GradScaler left out because of infinite gradients."),
        Column(
            "samples",
            "int64",
            "Samples in the batches that the step trained on, also where they were fetched before it.",
            counts="samples",
            nullable=True,
        ),
        Column("loader_start_ns", "int64", "Part of data_wait_ns spent on starting the loader and its workers."),
        Column("gc_ns", "int64", "Garbage collection, which runs inside whatever phase it interrupts."),
        Column(
            "communication_total_ns",
            "int64",
            "Collectives, overlapped ones included; null where only the held time is known.",
            nullable=True,
        ),
        Column(
            "communication_end_ns",
            "int64",
            "When the training thread last left a collective, since the start of the step; null where it was in none.",
            nullable=True,
        ),
        Column(
            "device_ns", "int64", "Device time of the step from CUDA events; null without a CUDA device.", nullable=True
        ),
        Column("detailed", "bool", "The step ran inside a detailed window, so its times carry the window's cost."),
        Column(
            "markers", "bool", "The step ended at an explicit step() call; the batch is a range that the script marked."
        ),
    ),
)

_PHASES = Table(
    "phases",
    "Exclusive stretches of the training thread in time order; kept for the first steps and for detailed windows.",
    (
        Column("step", "int64", "Training step as in steps."),
        Column("index", "int64", "Row of steps that the stretch belongs to."),
        category("phase", "Phase name.", Shown("phase", words=PHASE_NAMES)),
        Column("start_ns", "int64", "Start, since the run's epoch."),
        Column("duration_ns", "int64", "Length."),
    ),
)

_DEVICE_PHASES = Table(
    "device_phases",
    "What the parts of a step took on a CUDA device, by events on its stream; of one step in ten.",
    (
        Column("step", "int64", "Training step."),
        category(
            "phase",
            "What ends there: forward (all before the backward), backward, optimizer or tail.",
            Shown("phase", words=(*COMPUTING, "tail")),
        ),
        Column("duration_ns", "int64", "Time between the events around it, idle stretches included."),
    ),
)

TABLES = (_STEPS, _PHASES, _DEVICE_PHASES)
