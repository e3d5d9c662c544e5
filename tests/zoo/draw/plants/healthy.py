"""Nothing is planted: workers keep up, and what the loop does beside training is rare."""

import random
from dataclasses import replace

from tests.zoo.draw.parts import Plan, Plant, Work

FED = {"num_workers": 1, "persistent_workers": True}
_SAVE_SELDOM = """if step % 60 == 0:
    torch.save(model.state_dict(), os.path.join(where, "last.pt"))"""
_LOG_SELDOM = """if step % 40 == 0:
    with open(os.path.join(where, "log.txt"), "a") as file:
        file.write(f"{step} {loss.item():.5f}\\n")"""


def _plan_light(work: Work, choice: random.Random) -> Plan:
    options = {"num_workers": choice.choice((1, 2)), "persistent_workers": True}
    after = choice.choice(("", "", _SAVE_SELDOM, _LOG_SELDOM))
    return Plan(loading=options, pause_ms=choice.choice((30, 40, 50)), after=after)


def _plan_wide(work: Work, choice: random.Random) -> Plan:
    after = choice.choice(("", "", _LOG_SELDOM))
    return Plan(loading=FED, size="wide", threads=choice.choice(("1", "2", "")), after=after)


def _plan_jitter(work: Work, choice: random.Random) -> Plan:
    """A store that answers late now and then, and workers with time to spare."""
    reach = "time.sleep(0.03 if index % 97 == 0 else 0.0003)"
    return Plan(
        loading={"num_workers": 2, "persistent_workers": True}, pause_ms=40, reach=reach, reach_both=True, steps=110
    )


def _plan_hidden(work: Work, choice: random.Random) -> Plan:
    """The longer way of making samples, hidden behind the network."""
    part = choice.choice([name for name in work.swaps if name != "world"])
    batch = {"batch": str(max(2, work.slow_batch[part] * 4 // 10))}
    plan = Plan(loading={"num_workers": 2, "persistent_workers": True}, swap=part, swap_both=True, data=batch)
    return replace(plan, pause_ms=50)


PLANTS = (
    Plant(
        "",
        "workers keep up with a network that sleeps",
        _plan_light,
        feeds=("map", "inline", "iterable", "sharded", "pair", "buckets", "slices", "memory", "world"),
        share=4,
    ),
    Plant("", "large products fill the step", _plan_wide, feeds=("map", "inline", "slices", "world"), share=4),
    Plant(
        "", "a store is late now and then", _plan_jitter, feeds=("map", "inline"), without=("reinforcement",), share=2
    ),
    Plant(
        "",
        "workers compute, and keep up",
        _plan_hidden,
        feeds=("map", "inline", "iterable"),
        without=("reinforcement",),
        share=3,
    ),
)
