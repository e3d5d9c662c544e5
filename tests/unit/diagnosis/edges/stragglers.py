"""Thresholds on who waits for whom, driven through the function that decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from collector.format.intervals import Floats, Mask
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.lateness import Lateness
from profiler_server.analysis.ranks.patterns import (
    find_causes,
    find_handover,
    find_pause,
    find_starvation,
    find_stretch,
    find_turns,
    find_uneven_work,
    mark_long,
    weigh_garbage,
    weigh_longest,
)
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.analysis.ranks.together import find_whole
from profiler_server.analysis.what_if.steps import weigh_steps
from profiler_server.diagnosis.limits.facts import BEHIND_FRAC, SLOW_RANK_FRAC
from profiler_server.diagnosis.rank_sentences import describe_communication, describe_straggler, name_causes
from profiler_server.facts.job import Alike, Cause, Ddp, LateRank, NotJudged, Slow, Turns
from profiler_server.facts.ranks import CollectiveRow, JobSlowdown
from profiler_server.pages.ranks.head import say_slowdown
from tests.support.jobs import JobPlan, make_calls, make_job, summarize_job, take
from tests.support.meetings import STEP_MS, compare, lay, meet, spread, summarize
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import Edge

DEVIATION = 1.4826
"""Of a normal distribution, the standard deviation over the median of the deviations."""


def names_last(late_ms: Floats) -> bool:
    """Say whether the last rank is named, and it alone."""
    found = judge_ranks(summarize(late_ms))
    return isinstance(found, Slow) and found.culprits == (len(late_ms) - 1,)


def pick(steps: int, of: int, among: tuple[int, ...]) -> Mask:
    """Return which of the steps are one of these places in each round of so many."""
    found: Mask = np.isin(np.arange(steps) % of, among)
    return found


def outdo(steps: int, chosen: Mask, from_ms: float, most_ms: float = 9.0) -> Floats:
    """Return delays in some steps, each longer than the one before, so that none stands out."""
    return np.where(chosen, from_ms + np.linspace(0.1 * most_ms, most_ms, steps), 0.0)


def choose(late: Callable[[Calls], Calls], steps: int = 200) -> str:
    """Say by which meetings ranks are judged whose calls are listed so."""
    job = make_job(JobPlan(ranks=4, steps=steps, slow=(2,), slow_frac=0.2))
    ranks = [replace(rank, calls=late(make_calls(job, rank.rank))) for rank in summarize_job(job)]
    found = judge_ranks(ranks).comparison
    assert found is not None
    return found.source


def list_first(share: float) -> Callable[[Calls], Calls]:
    """List the calls of the first steps, as many as meetings are known of this share of 200."""
    return lambda calls: take(calls, slice(int(200 * share) + 1))


def hold(share: float) -> Callable[[Calls], Calls]:
    """Let the training stand still for a share of what the steps say."""
    return lambda calls: replace(calls, held_ns=(calls.held_ns * share).astype(np.int64))


def few_ranks(count: int) -> Floats:
    """The last rank is late in all steps and the last in two of five; the others are spread as far, and outdo it by turns."""
    steps = 60
    behind = 2 * SLOW_RANK_FRAC * STEP_MS
    late = spread(count, steps, **{f"r{count - 1}": behind})
    for rank, offset in enumerate(np.linspace(-1.5, 1.5, count - 1)):
        places = (0, 1, 2)[rank :: count - 1] if count == 4 else ((0, 1), (2,))[rank]
        late[rank] = offset
        chosen = pick(steps, 5, places)
        late[rank][chosen] = outdo(steps, chosen, behind, 1.0)[chosen]
    return late


def apart(deviations: float) -> Floats:
    """The last rank lies so many deviations behind the others, and is the last in two of five steps."""
    steps = 60
    late = spread(6, steps, r0=-1.0, r1=-1.0, r3=1.0, r4=1.0, r5=deviations * DEVIATION)
    for rank, places in ((3, (0,)), (4, (1, 2))):
        chosen = pick(steps, 5, places)
        late[rank][chosen] = outdo(steps, chosen, 8.0)[chosen]
    return late


def hardly_apart(behind: float) -> Floats:
    """Ranks that are alike, but for one that is behind by five times that in most steps and by more in some."""
    steps = 200
    often, long = pick(steps, 20, tuple(range(9, 20))), pick(steps, 20, (0, 1, 2, 3))
    late = spread(6, steps, r5=np.where(long, 10.0, 5 * behind * STEP_MS))
    late[0] = outdo(steps, often & pick(steps, 2, (0,)), 4.0)
    late[1] = outdo(steps, often & pick(steps, 2, (1,)), 4.0)
    return late


def vary(errors: float) -> Floats:
    """One of two ranks is behind by so many standard errors, and ahead as often as behind."""
    return spread(2, 64, r1=np.where(np.arange(64) % 2, 40.0, -40.0) + errors * 5.0)


def last_in(share: float) -> Floats:
    """The last rank is no outlier, and the last in this share of 1,000 steps."""
    steps = 1000
    late = spread(6, steps, r0=-1.0, r1=-1.0, r3=1.0, r4=1.0, r5=5.0)
    others = np.arange(steps) >= int(share * steps)
    late[3] = np.where(others & pick(steps, 2, (0,)), outdo(steps, others, 5.0), 1.0)
    late[4] = np.where(others & pick(steps, 2, (1,)), outdo(steps, others, 5.0), 1.0)
    return late


def beside(share: float) -> bool:
    """Say whether a rank that is behind by this share is named beside one that is by a third of the step."""
    found = judge_ranks(summarize(spread(6, 60, r4=share * STEP_MS, r5=30.0)))
    return found.culprits == (5, 4)


def is_long(deviations: float) -> bool:
    margins = np.tile([4.0, 5.0, 6.0], 33)
    late = np.stack([np.zeros(100), np.append(margins, 5.0 + deviations * DEVIATION)])
    return bool(mark_long(late)[1][-1])


def wait_long(count: int, was_last: int, usual: float = 0.0, steps: int = 60) -> bool:
    """Let rank 0 of ten be the last in some long waits of one second, and in all others by so much."""
    late = np.zeros((10, steps))
    late[0, count:], late[0, :was_last], late[1, was_last:count] = usual, 1000.0, 1000.0
    return weigh_longest(late, 0) is not None


def pause(share: float) -> bool:
    """Let one wait be this share of all waiting; the others are little more than is worth naming."""
    usual = 4 / 3 * BEHIND_FRAC * STEP_MS
    late = spread(2, 60, r1=usual)
    late[1, 30] = 59 * usual * share / (1 - share)
    return find_pause(meet(late), lay({"forward": late + STEP_MS}), STEP_MS * MS) is not None


def turn(late_ms: Floats, ranks: int = 2, **phases_ms: Floats) -> Turns | None:
    lateness = meet(late_ms)
    together = lay(phases_ms or {"forward": late_ms + STEP_MS})
    return find_turns(compare(ranks), lateness, lateness.sum_by_step()[1], together, 0.0)


def by_turns(steps: int, late_ms: float = 40.0) -> Floats:
    return spread(
        2, steps, r0=np.where(np.arange(steps) % 2, late_ms, 0.0), r1=np.where(np.arange(steps) % 2, 0.0, late_ms)
    )


def unevenly(entropy: float) -> Floats:
    """One of two ranks is the last in so many of 20,000 steps that the entropy is this."""
    low, high = 0.0, 0.5
    for _ in range(40):
        share = (low + high) / 2
        found = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
        low, high = (share, high) if found < entropy else (low, share)
    is_first = np.arange(20_000) < round(low * 20_000)
    return spread(2, 20_000, r0=np.where(is_first, 40.0, 0.0), r1=np.where(is_first, 0.0, 40.0))


def chance(times: float) -> bool:
    """Let eight ranks, usually 1 ms apart, wait so many times as long as that explains for the last one by turns."""
    waited = times * DEVIATION * np.sqrt(2 * np.log(8))
    late = np.array([np.roll([(8 * waited + 1) / 7, 1, 1, 1, 1, -1, -1, -1], at) for at in range(64)]).T * MS
    lateness = Lateness(tuple(range(8)), "steps", np.arange(64), late, (0.0, 0.0))
    together = lay({"forward": late / MS + STEP_MS})
    return find_turns(compare(8), lateness, late, together, 0.0) is not None


def one_phase(share: float) -> bool:
    """Let this share of what the last one does longer be one phase, that of data."""
    late = by_turns(60)
    found = turn(late, data_wait=share * late, forward=STEP_MS + (1 - share) * late)
    return found is not None and found.is_one_phase


def more_than_work(share: float) -> bool:
    """Let all of what the last one does longer be forward, which is all work but for this share."""
    late = by_turns(60)
    rest = np.full_like(late, share * STEP_MS)
    found = turn(late, forward=STEP_MS - rest - late.mean() + late, tail=rest)
    return found is not None and found.is_one_phase


def hand_over(share: float = 1.0, late_ms: float = 40.0) -> bool:
    """Let rank 0 be the last in this share of the first half, and rank 1 in all of the second; else rank 2 is."""
    first = np.arange(2000) < 1000
    is_other = first & (np.arange(2000) % 1000 * (1 - share) % 1.0 < 1 - share)
    late = spread(3, 2000, r0=np.where(first & ~is_other, late_ms, 0.0), r1=np.where(first, 0.0, late_ms))
    late[2] = np.where(is_other, late_ms, 0.0)
    return find_handover(compare(3), (0, 1, 2), *meet(late).sum_by_step()) is not None


def be_late_from(share: float = 1.0, late_ms: float = 40.0, steps: int = 2000) -> bool:
    """Let a rank be late in this share of the second half, and in time in the first, by so much in the mean."""
    first = np.arange(steps) < steps // 2
    is_other = ~first & (np.arange(steps) * (1 - share) % 1.0 < 1 - share)
    late = np.where(first, 0.0, late_ms + np.where(is_other, -late_ms, late_ms * (1 - share) / share))
    return find_stretch(np.arange(steps), late * MS, STEP_MS * MS) is not None


def in_time_by(share: float) -> bool:
    late = np.where(np.arange(60) < 30, share * STEP_MS, 40.0)
    return find_stretch(np.arange(60), late * MS, STEP_MS * MS) is not None


def has_small_cause(share: float) -> bool:
    late = spread(2, 20, r1=40.0)
    together = lay({"forward": STEP_MS + (1 - share) * late, "backward": STEP_MS + share * late})
    return "backward" in [cause.name for cause in find_causes(together, together.mark(1))]


def uneven(correlation: float = 1.0, varies: float = 1.0, steps: int = 20) -> bool:
    """Let forward and backward of two of three ranks vary about the third, with this correlation and by so much of a step."""
    first, second = (np.resize(pattern, steps) for pattern in ([1, -1, 1, -1], [1, 1, -1, -1]))
    size = varies * STEP_MS / 2 / np.sqrt(2 / 3)
    forward = size * np.stack([first, -first, 0 * first])
    other = size * np.stack([second, -second, 0 * second])
    backward = correlation * forward + np.sqrt(1 - correlation**2) * other
    middle = np.full_like(forward, STEP_MS / 2)
    return find_uneven_work(lay({"forward": forward + middle, "backward": backward + middle})) is not None


def collect(pauses: Floats | Mask, pause_ms: float) -> bool:
    forward = np.full(pauses.shape, STEP_MS)
    return weigh_garbage(lay({"forward": forward}, np.where(pauses, pause_ms, 0.0))) is not None


def collect_together(ratio: float) -> bool:
    """Two ranks collect together in 5,000 of 40,000 steps, and alone in so many that this is the ratio of the chances."""
    both, alone = 5_000, round(5_000 * (ratio - 1) / (1 - ratio / 2))
    pauses = np.zeros((2, 40_000))
    pauses[:, :both] = 1
    pauses[0, both : both + alone // 2] = pauses[1, both + alone // 2 : both + alone] = 1
    return collect(pauses, 30.0)


def collect_alone(share: float) -> bool:
    """Two ranks never collect together, the first one in this share of the steps in which either does."""
    steps = np.arange(4_000)
    return not collect(np.stack([steps < int(share * 2_000), (steps >= int(share * 2_000)) & (steps < 2_000)]), 50.0)


def weigh(steps: int = 8, apart_ms: float = 0.0) -> bool:
    """Say whether there are figures of two ranks that work for as long, one of which is held by so much longer."""
    held = np.full((2, steps), 20.0)
    held[1] += apart_ms
    return weigh_steps(np.arange(2), held + 80.0, held, {}).slowdown is not None


def list_last(share: float) -> bool:
    """Let rank 0 be the last in this share of the listed collectives."""
    row = CollectiveRow(0, "allreduce", 1000, 1000, 1, 1, 1, int(1000 * share), None, None, None)
    rows = [row, replace(row, rank=1, late=1000 - int(1000 * share))]
    return "came last to" in describe_communication((), rows, NotJudged())


def share_out(**fields: object) -> Ddp:
    """Return settings of DistributedDataParallel with one bucket."""
    usual = Ddp("nccl", "cuda", 1 << 30, None, (1 << 20,), False, False, 1000, 1000)
    return replace(usual, **fields)  # type: ignore[arg-type]


def lag(share: float) -> bool:
    found = compare()
    return "the slowest" in describe_straggler(Alike(replace(found, latest=replace(found.latest, late_frac=share))))


def lose(waste: float, stage_share: float | None = None) -> str:
    return say_slowdown(JobSlowdown(slowdown=1 / (1 - waste), waste_frac=waste, stage_share=stage_share))


BY_TURNS = np.eye(16)
EDGES: Mapping[str, Edge] = {
    "SLOW_RANK_FRAC": Edge(0.03, lambda x: names_last(spread(2, 60, r1=x * STEP_MS))),
    "BEHIND_FRAC": Edge(0.03, lambda x: uneven(varies=x)),
    "MOST_FRAC": Edge(0.5, lambda x: LateRank(1, 200.0, 100.0, "data_wait", 100.0 * x, 0.0, 1).waits_for_data),
    "CLEAR_FRAC": Edge(0.8, lambda x: bool(find_starvation(100.0, 100.0 * x, 0.0))),
    "LEAST_MEETINGS": Edge(10, lambda x: turn(by_turns(int(x))) is not None),
    "EXPLAINED_FRAC": Edge(0.7, lambda x: choose(hold(x)) == "collectives"),
    "LEAST_RANKS": Edge(4, lambda x: not names_last(few_ranks(int(x)))),
    "OUTLYING_DEVIATIONS": Edge(5.0, lambda x: names_last(apart(x))),
    "LEAST_DEVIATION_FRAC": Edge(0.005, lambda x: names_last(hardly_apart(x))),
    "SURE_ERRORS": Edge(3.0, lambda x: names_last(vary(x))),
    "LONG_DEVIATIONS": Edge(10.0, is_long),
    "LEAST_LONG": Edge(5, lambda x: wait_long(int(x), int(x))),
    "ROTATING_ENTROPY": Edge(0.8, lambda x: turn(unevenly(x)) is not None),
    "LARGE_WAIT_FRAC": Edge(
        0.1, lambda x: turn(by_turns(60, 2 * x * STEP_MS)) is not None and hand_over(late_ms=x * STEP_MS)
    ),
    "OUTLYING_WAIT": Edge(1.5, chance),
    "MORE_THAN_WORK_FRAC": Edge(0.2, more_than_work),
    "LEAST_CAUSE_FRAC": Edge(0.05, has_small_cause),
    "UNEVEN_CORRELATION": Edge(0.9, uneven),
    "LEAST_PAUSE_FRAC": Edge(0.02, lambda x: collect(BY_TURNS, x * STEP_MS)),
    "APART_PAUSES": Edge(1.5, collect_together),
    "LEAST_GAIN_FRAC": Edge(0.01, lambda x: collect(np.eye(2, 10), x * STEP_MS / 0.09)),
    "LISTED_LAST_FRAC": Edge(0.7, list_last),
    "SEEN_BEHIND_FRAC": Edge(0.001, lag),
    "MOST_DISCREPANCY": Edge(0.05, lambda x: not weigh(apart_ms=200.0 * x)),
    "LEAST_LOSS_FRAC": Edge(0.005, lambda x: "shorter" in lose(x)),
    "LEAST_WEIGHED_STEPS": Edge(5, lambda x: weigh(int(x))),
    "MANY_BUCKETS": Edge(8, lambda x: share_out(bucket_bytes=(1000,) * int(x)).has_tiny_buckets),
    "SMALL_BUCKET_BYTES": Edge(1 << 20, lambda x: not share_out(bucket_bytes=(int(x),) * 9).has_tiny_buckets),
    "LEAST_SPLIT_BYTES": Edge(4 << 20, lambda x: share_out(bucket_bytes=(int(x),)).has_one_bucket),
    "SYNCED_FRAC": Edge(0.95, lambda x: share_out(synced_backwards=int(1000 * x)).syncs_all),
}
ALSO: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("SLOW_RANK_FRAC", lambda x: beside(x)),
    ("BEHIND_FRAC", lambda x: not in_time_by(x)),
    ("MOST_FRAC", lambda x: choose(list_first(x)) == "collectives"),
    ("MOST_FRAC", lambda x: names_last(last_in(x))),
    ("MOST_FRAC", lambda x: wait_long(10, 10, usual=200.0 * (1 - x) / x)),
    ("MOST_FRAC", pause),
    ("MOST_FRAC", lambda x: bool(find_whole(np.array([1000, 1000, int(1000 * x)]))[2])),
    ("CLEAR_FRAC", lambda x: wait_long(1000, int(1000 * x), steps=4000)),
    ("CLEAR_FRAC", one_phase),
    ("CLEAR_FRAC", hand_over),
    ("CLEAR_FRAC", be_late_from),
    ("CLEAR_FRAC", collect_alone),
    ("CLEAR_FRAC", lambda x: "mostly" not in name_causes((Cause("forward", 1.0, x),))),
    ("MOST_FRAC", lambda x: "The last stage accounts for" in lose(0.1, stage_share=x)),
    ("LEAST_MEETINGS", lambda x: uneven(steps=int(x))),
    ("LEAST_MEETINGS", lambda x: be_late_from(steps=2 * int(x))),
    ("LARGE_WAIT_FRAC", lambda x: be_late_from(late_ms=x * STEP_MS)),
)
"""Other decisions that the same threshold takes."""
