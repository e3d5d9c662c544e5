"""In each step another rank is the slowest, or another micro-batch, and all others wait for it."""

from __future__ import annotations

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits.facts import NOISY_FRAC
from profiler_server.diagnosis.limits.ranks import ROTATING_FRAC
from profiler_server.diagnosis.what_if import save_each_step, shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.job import BEHIND_FRAC, Turns, UnevenWork
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share

_CHANGE = """# if the work of a sample grows with its length: all ranks get samples of like length in the same step
class LikeLengths(torch.utils.data.Sampler):
    def __init__(self, lengths, batch_size, rank, world_size):
        self.by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self.epoch = 0

    def __len__(self):
        return len(self.by_length) // (self.batch_size * self.world_size)

    def __iter__(self):
        size = self.batch_size * self.world_size
        steps = torch.randperm(len(self), generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.epoch += 1
        for step in steps:  # the same step on every rank, and another part of its samples
            yield self.by_length[step * size : (step + 1) * size][self.rank :: self.world_size]

loader = DataLoader(dataset, batch_sampler=LikeLengths(lengths, batch_size, rank, world_size))"""


_EQUAL_WORK = (
    "If samples are of unequal size, give all ranks samples of like size in the same step, or bound a batch by its tokens; "
    "else compare a step on two ranks in the timeline."
)
_EVIDENCE = (Evidence("ranks", "", "All ranks side by side"),)


def _judge(case: Case) -> Finding | None:
    match case.ranks.verdict:
        case Turns() as turns:
            return _judge_turns(case, turns)
        case UnevenWork() as uneven:
            return _write_uneven(uneven)
        case _:
            return None


def _judge_turns(case: Case, turns: Turns) -> Finding | None:
    lost_ns = min(turns.gain_ns, case.steps.phases_ns["communication"])
    share = lost_ns / case.steps.mean_ns
    is_uneven = turns.comparison.uneven_correlation is not None
    is_crowded = case.host.others_frac >= NOISY_FRAC or case.lacks_processors
    # Ranks that share processors take turns by chance, and then in whatever they do.
    is_chance = is_crowded and not is_uneven and not turns.is_one_phase
    if share < ROTATING_FRAC or is_chance:
        return None
    most = max(turns.comparison.last_frac.values(), default=0.0)
    return Finding(
        title="The ranks take turns at being the slowest",
        measured=f"In each step the ranks wait for the one that comes last, {format_duration(lost_ns)} on average "
        f"({format_share(share)}); no rank is the last in more than {format_share(most)} of the steps."
        f"{_say_longer(turns)}",
        threshold=f"At least {format_share(ROTATING_FRAC)} of the step, and the ranks come last about equally often.",
        advice=f"{_say_reasons(is_uneven, is_crowded)} {_EQUAL_WORK}",
        change=_CHANGE,
        fix="equal work on all ranks",
        evidence=_EVIDENCE,
        assumption="half of the difference went away",
        what_if=shorten_step(case, "communication", lost_ns, 0.5),
        gain_range=(0.5, 1.8),
    )


def _write_uneven(uneven: UnevenWork) -> Finding:
    comparison = uneven.comparison
    return Finding(
        title="The micro-batches of the pipeline are of unlike work",
        measured=f"With the same work in all micro-batches of a stage the step would be {format_duration(uneven.gain_ns)} "
        f"({format_share(comparison.share(uneven.gain_ns))}) shorter; the same work in all stages would gain less.",
        threshold=f"At least {format_share(BEHIND_FRAC)} of the step.",
        advice=f"{_say_reasons(comparison.uneven_correlation is not None, is_crowded=False)} {_EQUAL_WORK}",
        change=_CHANGE,
        fix="micro-batches of like work",
        evidence=_EVIDENCE,
        severity="medium",
        tier="A",
        what_if=save_each_step("communication", uneven.gain_ns),
        gain_range=(0.5, 1.05),
    )


def _say_longer(turns: Turns) -> str:
    named = [PHASE_LABELS[cause.name].lower() for cause in turns.causes[:2] if cause.name in PHASE_LABELS]
    return f" What takes longer on it: {', '.join(named)}." if named else ""


def _say_reasons(is_uneven: bool, is_crowded: bool) -> str:
    if not is_uneven:
        return (
            "Why was not seen. One possible reason is work that differs from rank to rank: sequences or images of "
            "unequal size."
        )
    host = " Processors that the ranks share with others are another one." if is_crowded else ""
    return (
        "Forward and backward grow and shrink together, which sequences or images of unequal size would explain: one "
        f"possible reason.{host}"
    )


RULES = (Rule("rotating_straggler", knob="straggler", effort="code", judge=_judge),)
