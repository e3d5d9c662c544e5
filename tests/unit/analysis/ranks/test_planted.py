"""Jobs of 2 to 256 ranks with a planted culprit: is it named, and is the slowdown what was planted?"""

from __future__ import annotations

import pytest

from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.analysis.what_if.pipelines import weigh_ranks
from profiler_server.facts.job import Slow, Turns
from tests.support.jobs import JobPlan, make_job, summarize_job
from tests.support.must import must
from tests.support.planted_jobs import plan_cases

SAMPLE = [*plan_cases(1, (2, 3, 8)), *plan_cases(2, (4, 64)), *list(plan_cases(3, (256,)))[1:2]]


@pytest.mark.parametrize("plan", SAMPLE, ids=lambda plan: f"{plan.ranks}-{len(plan.slow)}-{plan.takes_turns}")
def test_the_planted_culprit_is_named_and_no_other(plan: JobPlan) -> None:
    job = make_job(plan)
    ranks = summarize_job(job)
    found = judge_ranks(ranks)
    assert (found.culprits[:1] if isinstance(found, Slow) else ()) == plan.slow
    assert isinstance(found, Turns) == plan.takes_turns
    if plan.slow:
        assert must(found.comparison).latest.causes[0].name == plan.phase
    weighed = weigh_ranks({rank.rank: rank.together for rank in ranks})
    assert must(weighed.slowdown) / job.slowdown == pytest.approx(1.0, abs=0.03)
