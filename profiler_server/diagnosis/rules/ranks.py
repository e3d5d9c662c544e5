"""Ranks that wait for each other: for a slow one, for its loader, for the last one by turns, for a heavy stage."""

from __future__ import annotations

from dataclasses import replace

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits.facts import LEAST_OF_DELAY, MOST_OF_DELAY, NOISY_FRAC
from profiler_server.diagnosis.limits.ranks import RANK_LOADER_FRAC, ROTATING_FRAC
from profiler_server.diagnosis.what_if import mend_ranks, save_each_step, shorten_step
from profiler_server.diagnosis.wording import name_call, spell_function
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.job import BEHIND_FRAC, Handover, HeavyStage, Slow, Turns, UnevenWork
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share


def _judge_straggler(case: Case) -> Finding | None:
    """One rank is slower than the others, which wait for it in their collectives."""
    verdict = case.ranks.verdict
    # Whether a rank is slow is decided in one place: the Ranks page says the very same.
    if not isinstance(verdict, (Slow, Handover)):
        return None
    latest = verdict.comparison.latest
    if isinstance(verdict, Slow) and latest.waits_for_data:
        return None  # slow_rank_loader says more
    slow, others = latest.rank, "the others" if latest.others > 1 else "the other rank"
    found = Finding(
        title=f"Rank {slow} is slower than {others}",
        measured=_say_late(verdict, "the median of the others" if latest.others > 1 else others),
        threshold=f"One rank is behind the median of the others by {format_share(BEHIND_FRAC)} of the step or more, and by "
        "more than chance and the differences among the others explain.",
        advice=f"Look at rank {slow}: its suggestions and its phases beside those of another rank. Uneven data, a "
        "busy host or a slower device are the usual causes.",
        change=f"profiler-server report RUN --rank {slow}",
        fix=f"a rank {slow} as fast as {others}",
        evidence=(
            Evidence("ranks", "sort=-own", "All ranks side by side"),
            Evidence("steps", f"rank={slow}", f"Phases of rank {slow}"),
        ),
        severity="medium",
        tier="A",
        gain_range=(LEAST_OF_DELAY, MOST_OF_DELAY),
    )
    if isinstance(verdict, Handover):
        both = f"ranks {verdict.before} and {verdict.after}"
        found = replace(found, title=f"{both.capitalize()} hold the job up, one after the other", fix=f"{both} in time")
    elif (culprit := case.ranks.culprit) is not None:
        found = replace(
            found,
            title=f"{found.title}: {name_call(culprit)}",
            advice=f"Most of what it does longer is {spell_function(culprit)}: take it out, do it less often, or give each "
            "rank its part of it.",
        )
    if verdict.comparison.is_hidden:
        return found
    part = latest.phase if case.manifest.rank == slow else "communication"
    # That a rank is slow is said also where the gain is smaller than the doubt.
    return replace(found, what_if=mend_ranks(case, part), otherwise=found)


def _say_late(verdict: Slow | Handover, middle: str) -> str:
    comparison, latest = verdict.comparison, verdict.comparison.latest
    who = "they wait" if latest.others > 1 else "it waits"
    if isinstance(verdict, Handover):
        return (
            f"Before step {verdict.step:,} {who} for rank {verdict.before}, {format_duration(verdict.before_ns)} a step, and "
            f"for rank {verdict.after}, {format_duration(verdict.after_ns)}, from then on."
        )
    wait = (
        f"{who} for it, {format_duration(verdict.gain_ns)} a step ({format_share(comparison.share(verdict.gain_ns))})"
    )
    if comparison.is_hidden:
        wait = f"whether {who} for it was not seen"
    often = f"It is the last in {format_share(comparison.last_frac[latest.rank])} of the steps."
    if verdict.longest is not None:
        last, count = verdict.longest
        often = f"It is the last in {last:,} of the {count:,} steps in which the others waited by far the longest."
    return f"Rank {latest.rank} is behind {middle} by {format_share(latest.late_frac)} of the step; {wait}. {often}"


def _judge_rank_loader(case: Case) -> Finding | None:
    """One rank waits for its data, and the others wait for it."""
    verdict = case.ranks.verdict
    if not isinstance(verdict, Slow) or not verdict.comparison.latest.waits_for_data:
        return None
    latest = verdict.comparison.latest
    behind_ns = latest.phase_ns - latest.phase_others_ns
    if behind_ns < RANK_LOADER_FRAC * case.steps.mean_ns:
        return None
    slow = latest.rank
    return Finding(
        title=f"The loader of rank {slow} is slow",
        measured=f"Rank {slow} waits {format_duration(latest.phase_ns)} per step for data, the others "
        f"{format_duration(latest.phase_others_ns)}; it holds them up {format_duration(verdict.gain_ns)} a step "
        f"({format_share(verdict.comparison.share(verdict.gain_ns))}).",
        threshold=f"One rank waits longer for data than the others by {format_share(RANK_LOADER_FRAC)} of the step or more, "
        "and is the slowest for that.",
        advice=f"Look at what rank {slow} reads and where: its part of the data, its disk or mount, the cores that its "
        "workers share with other programs. A suggestion on its own page may say more.",
        change=f"profiler-server report RUN --rank {slow}",
        fix=f"a loader of rank {slow} as fast as the others'",
        evidence=(
            Evidence("data", f"rank={slow}", f"The data pipeline of rank {slow}"),
            Evidence("ranks", "sort=-own", "All ranks side by side"),
        ),
        tier="A",
        what_if=mend_ranks(case, "data_wait" if case.manifest.rank == slow else "communication"),
        gain_range=(LEAST_OF_DELAY, MOST_OF_DELAY),
    )


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


def _judge_turns_or_work(case: Case) -> Finding | None:
    """In each step another rank is the slowest, or another micro-batch, and all others wait for it."""
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


def _judge_stages(case: Case) -> Finding | None:
    """One stage of a pipeline has more work than the others, which wait for it."""
    heavy = case.ranks.verdict
    if not isinstance(heavy, HeavyStage):
        return None
    part = "backward" if case.manifest.rank in heavy.culprits else "communication"
    return Finding(
        title=f"Stage {heavy.stage} of the pipeline has more work than the others",
        measured=f"It computes {format_duration(heavy.own_ns)} a step, the other stages {format_duration(heavy.others_ns)} "
        "in the mean.",
        threshold=f"With the same work in all stages the step is shorter by {format_share(BEHIND_FRAC)} or more.",
        advice="Move layers to the other stages. The last stage holds the loss and the output layer, the first the "
        "embedding: give them fewer layers than the others. The prediction replays every operation with each stage "
        "scaled to the mean work of all.",
        change="# Megatron-LM: layers of the first and the last stage; the others share the rest\n"
        "--decoder-first-pipeline-num-layers N --decoder-last-pipeline-num-layers M",
        fix="the same work in all stages",
        evidence=(Evidence("ranks", "", "All ranks side by side"),),
        severity="medium",
        tier="A",
        what_if=save_each_step(part, heavy.gain_ns),
        gain_range=(0.5, 1.05),
    )


RULES = (
    Rule("fixed_straggler", knob="straggler", effort="code", judge=_judge_straggler),
    Rule("slow_rank_loader", knob="rank_loader", effort="code", judge=_judge_rank_loader),
    Rule("rotating_straggler", knob="straggler", effort="code", judge=_judge_turns_or_work),
    Rule("uneven_stages", knob="stages", effort="code", judge=_judge_stages),
)
