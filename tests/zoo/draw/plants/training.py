"""What makes forward, backward and update take long."""

import random
from dataclasses import replace

from tests.zoo.draw.parts import Plan, Plant, Work

ANY = ("map", "slices", "memory", "world")
KEPT = {"persistent_workers": True}


def _feeding(plan: Plan) -> Plan:
    return replace(plan, loading={"num_workers": 1, **KEPT})


def _plan_threads(work: Work, choice: random.Random) -> Plan:
    return _feeding(
        Plan(size="wide", threads=f"args.threads or (2 if args.fixed else {choice.choice((6, 8))})", steps=50)
    )


def _plan_float64(work: Work, choice: random.Random) -> Plan:
    setup = "torch.set_default_dtype(torch.float32 if args.fixed else torch.float64)"
    return _feeding(Plan(size="wide", dtype="float64", setup=setup, steps=80))


def _plan_anomaly(work: Work, choice: random.Random) -> Plan:
    return _feeding(
        Plan(size="deep", setup="torch.autograd.set_detect_anomaly(not args.fixed)", optimizer="fused=True", steps=100)
    )


def _plan_optimizer(work: Work, choice: random.Random) -> Plan:
    base = choice.choice(('{"foreach": False}', "{}"))
    return _feeding(Plan(size="deep", optimizer=base, optimizer_fixed='{"fused": True}', steps=120))


def _plan_recompiles(work: Work, choice: random.Random) -> Plan:
    """Recordings become longer during training, and each length is compiled for itself."""
    every = choice.choice((5, 6))
    return _feeding(
        Plan(
            size="narrow",
            data={
                "first": f"spectra = spectra[:, :, : 16 + step // {every} * 2]",
                "wrap": "torch._dynamo.config.recompile_limit = 100\n"
                'model = torch.compile(model, backend="aot_eager", dynamic=args.fixed)',
            },
        )
    )


PLANTS = (
    Plant(
        "threads_over_cores",
        "torch computes with more threads than there are cores",
        _plan_threads,
        feeds=ANY,
        works=("image", "segmentation", "tabular", "reinforcement", "audio"),
        share=4,
    ),
    Plant(
        "float64",
        "everything is computed in double precision",
        _plan_float64,
        feeds=ANY,
        works=("image", "audio", "tabular", "segmentation", "reinforcement"),
        share=4,
    ),
    Plant(
        "debug_modes",
        "anomaly detection was left on",
        _plan_anomaly,
        feeds=ANY,
        works=("tabular", "reinforcement", "audio"),
        share=4,
    ),
    Plant(
        "optimizer_loop",
        "the update goes through many small tensors one by one",
        _plan_optimizer,
        feeds=ANY,
        works=("tabular", "reinforcement"),
        share=4,
    ),
    Plant(
        "recompiles",
        "every length of a recording is compiled for itself",
        _plan_recompiles,
        works=("audio",),
        loops=("plain", "enumerate", "iterator", "function", "progress"),
    ),
)
