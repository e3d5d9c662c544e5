"""Ranks that come last by turns: what is known is said, a reason is only named as possible, and a crowded host is one."""

from __future__ import annotations

import torch

from profiler_server.diagnosis.limits.facts import NOISY_FRAC
from profiler_server.diagnosis.rules.ranks import RULES
from profiler_server.facts.case import Case, Finding
from profiler_server.facts.job import Turns
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.noted import compared, judged

RULE = next(rule for rule in RULES if rule.id == "rotating_straggler")


def turning(*, others: float = 0.0, correlation: float | None = None) -> Case:
    case = judged(Turns(compared(uneven_correlation=correlation), 0.3 * base().steps.mean_ns, (), 1.0))
    return make.with_load(case, others=others * case.host.cores)


def hear(case: Case) -> Finding:
    found = RULE.judge(case)
    assert isinstance(found, Finding)
    return found


def test_turns_on_a_host_that_others_use_are_no_finding() -> None:
    busy = NOISY_FRAC + 0.1
    assert RULE.judge(turning(others=busy)) is None
    assert "share with others are another one" in hear(turning(others=busy, correlation=0.9)).text.advice


def test_the_sampler_that_is_advised_gives_all_ranks_like_lengths_in_a_step() -> None:
    lengths = torch.randint(1, 500, (103,), generator=torch.Generator().manual_seed(3)).tolist()
    code = hear(turning()).text.change
    room: dict[str, object] = {
        "torch": torch,
        "DataLoader": torch.utils.data.DataLoader,
        "dataset": list(range(103)),
        "lengths": lengths,
        "batch_size": 5,
        "world_size": 4,
    }
    ranks = []
    for rank in range(4):
        own = {**room, "rank": rank}
        exec(code, own)
        loader = own["loader"]
        assert isinstance(loader, torch.utils.data.DataLoader)
        first, second = ([batch.tolist() for batch in loader] for _ in range(2))
        assert first != second
        ranks.append(first)
    seen = [sample for rank in ranks for batch in rank for sample in batch]
    assert len(seen) == len(set(seen)) == 100
    for step in zip(*ranks, strict=True):
        sizes = [lengths[sample] for batch in step for sample in batch]
        assert len(sizes) == 20
        assert max(sizes) - min(sizes) < 200
