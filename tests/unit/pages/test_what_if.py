"""The what-if panel of the Ranks page: what it says of a job with one slow rank, of an even one, and of an unknown one."""

from __future__ import annotations

from profiler_server.facts.ranks import JobSlowdown
from profiler_server.pages.ranks.head import say_slowdown, view_what_if


def test_a_slow_rank_is_named_with_what_mending_it_gains() -> None:
    found = JobSlowdown(
        slowdown=1.25,
        waste_frac=0.2,
        discrepancy_frac=0.01,
        by_rank={0: 1.0, 3: 1.25},
        by_operation={"data_wait": 1.2, "forward": 1.01},
        mend_rank_gain_ns={0: 10.0, 3: 20e6},
        method="replay",
    )
    view = view_what_if(found)
    assert view is not None
    assert "20.0 % shorter (slowdown 1.25). Rank 3 alone at that mean gains 20.0 ms a step." in view.sentence
    assert [(row.name, row.gain) for row in view.ranks] == [("rank 3", "20.0 ms"), ("rank 0", "nothing")]
    assert [row.name for row in view.operations] == ["Data wait", "Forward"]
    assert view.ranks[0].loss_frac == 1.0


def test_the_panel_has_no_gains_where_ranks_meet_in_each_step() -> None:
    found = JobSlowdown(slowdown=1.25, waste_frac=0.2, by_rank={3: 1.25}, method="steps")
    view = view_what_if(found)
    assert view is not None
    assert not view.has_gain
    assert "alone" not in view.sentence


def test_an_even_job_has_nothing_to_mend() -> None:
    found = JobSlowdown(slowdown=1.001, waste_frac=0.001, discrepancy_frac=0.0, mend_rank_gain_ns={0: 1e6})
    assert "as long as it is" in say_slowdown(found)
    assert "alone at that mean" not in say_slowdown(found)


def test_communication_that_varies_is_told_apart_from_unlike_ranks() -> None:
    # As measured 125 ms; with even ranks 120 ms, and with the communication of the median step as well 100 ms.
    found = JobSlowdown(slowdown=1.25, waste_frac=0.2, by_operation={"forward": 1.05, "communication": 1.2})
    said = say_slowdown(found)
    assert (
        "the step would be 4.0 % shorter; if communication took as long as in the median step as well, 20.0 %" in said
    )


def test_a_last_stage_that_is_too_heavy_is_named() -> None:
    found = JobSlowdown(slowdown=1.2, waste_frac=0.17, discrepancy_frac=0.0, stage_share=0.9)
    assert "The last stage accounts for 90.0 % of the loss" in say_slowdown(found)
    # Mended alone it gains more than all ranks at the mean: the others have less work then.
    more = JobSlowdown(slowdown=1.2, waste_frac=0.17, discrepancy_frac=0.0, stage_share=1.22)
    assert "The last stage accounts for all of the loss" in say_slowdown(more)


def test_without_figures_the_reason_is_shown() -> None:
    view = view_what_if(JobSlowdown(reason="Working and waiting cannot be told apart."))
    assert view is not None
    assert (view.reason, view.ranks) == ("Working and waiting cannot be told apart.", ())
    assert view_what_if(None) is None


def test_ranks_that_slow_nothing_down_are_one_line_and_equal_ones_stand_in_their_order() -> None:
    ranks = dict.fromkeys(range(64), 1.0) | {30: 1.2, 4: 1.01, 20: 1.01}
    view = view_what_if(JobSlowdown(slowdown=1.3, waste_frac=0.2, discrepancy_frac=0.0, by_rank=ranks, method="steps"))
    assert view is not None
    assert [(row.name, row.slowdown) for row in view.ranks] == [
        ("rank 30", "1.200"),
        ("rank 4", "1.010"),
        ("rank 20", "1.010"),
        ("61 others", "1.000"),
    ]
