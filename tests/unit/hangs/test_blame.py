"""Who waits for whom where a job has several process groups: ranks of other groups are victims, not culprits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from collector.hangs.blame import Stop, explain_counts, explain_positions
from collector.hangs.live import classify_positions, describe_live_hang
from collector.hangs.positions import RankPosition, Still, read_position

S = 10**9
NOW = 1_780_000_000 * S
MESH = {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}


def tell(rank: int, *, inside: str = "", dp: int = 811, tp: int = 40, following: str = "", **told: Any) -> RankPosition:
    """Return where a rank of a mesh of 2 x 2 is: waiting in a collective of a group, or elsewhere."""
    groups = [{"name": "0", "label": "default_pg", "is_whole": True, "ended": 3}]
    for label, ended in (("dp", dp), ("tp", tp)):
        (ranks,) = (ranks for ranks in MESH[label] if rank in ranks)
        name = f"{label}{ranks[0]}"
        groups.append({"name": name, "label": f"mesh_{label}", "ranks": list(ranks), "ended": ended})
    names = {group["label"]: group["name"] for group in groups}
    next_in = names.get(f"mesh_{inside or following}", "")
    moment = {
        "step": 41,
        "phase": "communication" if inside else "data_wait",
        "in_collective": bool(inside),
        "ended": 3 + dp + tp,
        "next": {"name": "allreduce", "bytes": 25 << 20, "is_begun": bool(inside), "group": next_in},
        "groups": groups,
        **told,
    }
    still = {"for_ns": 94 * S, "limit_ns": 30 * S, "alone_limit_ns": 60 * S, "stack": ""}
    place = read_position(rank, moment, NOW, still)
    assert place is not None
    return place


def must_stop(*places: RankPosition) -> Stop:
    found = explain_positions(places)
    assert found is not None
    return found


def test_the_rank_that_never_entered_a_collective_of_its_group_is_named_and_ranks_of_other_groups_are_not() -> None:
    """Rank 3 sleeps before the gradients: 1 waits for it there, 2 for its next tensor-parallel call, and 0 for rank 1."""
    places = [
        tell(0, inside="tp", dp=812, tp=41),
        tell(1, inside="dp", tp=41),
        tell(2, inside="tp", dp=812, tp=40),
        tell(3, following="dp"),
    ]
    found = classify_positions(places)
    assert found is not None
    assert describe_live_hang(found, "25.0 MiB") == (
        "Rank 3 has not entered allreduce 812 (25.0 MiB) of group dp (ranks 1, 3) for 94 s; 1 rank waits for it, 2 more "
        "ranks wait in other collectives. Rank 3 was last seen in data wait of step 41."
    )


def test_the_order_of_the_ranks_does_not_matter() -> None:
    places = [tell(3, following="dp"), tell(2, inside="tp"), tell(1, inside="dp", tp=41), tell(0, inside="tp", tp=41)]
    stop = must_stop(*places)
    assert (stop.waiting, [place.rank for place in stop.missing], stop.number) == ((1,), [3], 812)


def test_of_two_groups_that_wait_for_a_rank_the_one_that_has_waited_longer_is_told() -> None:
    longer = tell(1, inside="dp", tp=41)
    assert longer.still is not None
    longer = replace(longer, still=replace(longer.still, for_ns=95 * S))
    stop = must_stop(tell(0, inside="tp", tp=41), longer, tell(2, inside="tp"), tell(3))
    assert stop.group is not None
    assert (stop.group.title, stop.waiting) == ("dp", (1,))


def test_ranks_that_wait_for_each_other_in_two_groups_are_told_with_where_they_wait() -> None:
    """They call in another order: 0 waits for 1 in one group, and 1 for 0 by way of 3 and 2 in others."""
    places = [tell(0, inside="tp"), tell(1, inside="dp"), tell(2, inside="dp"), tell(3, inside="tp")]
    found = classify_positions(places)
    assert found is not None
    assert " has not entered allreduce " in describe_live_hang(found)
    assert " was last seen in allreduce " in describe_live_hang(found)


def test_a_rank_that_waits_itself_is_not_blamed_while_another_may_be_to_blame_that_was_not_heard() -> None:
    assert explain_positions([tell(0, inside="tp", tp=41), tell(1, inside="dp", tp=41)]) is None


def test_members_that_were_not_told_are_those_that_have_called_in_the_group() -> None:
    def forget(place: RankPosition) -> RankPosition:
        return replace(place, counts=tuple((replace(group, ranks=()), count) for group, count in place.counts))

    stop = must_stop(*map(forget, (tell(0), tell(1, inside="dp"), tell(2), tell(3))))
    assert [place.rank for place in stop.missing] == [3]


def test_a_group_that_all_of_its_ranks_have_entered_blames_nobody() -> None:
    assert explain_positions([tell(0), tell(1, inside="dp"), tell(2), tell(3, inside="dp")]) is None


def test_a_rank_that_stands_in_a_call_of_torch_that_is_not_seen_is_not_blamed() -> None:
    unseen = tell(1)
    assert unseen.still is not None
    unseen = replace(unseen, still=replace(unseen.still, waits=True))
    stop = must_stop(tell(0, inside="dp"), unseen, tell(2), tell(3, inside="dp"))
    assert [place.rank for place in stop.missing] == [2]


def test_a_rank_in_a_backward_that_waits_for_gradients_is_not_blamed() -> None:
    """The backward of rank 1 waits for rank 3; rank 0 waits in a collective for rank 1."""
    backward = tell(1, phase="backward", backward_group="dp1")
    places = [tell(0, inside="tp"), backward, tell(2, phase="backward", backward_group="dp0"), tell(3)]
    stop = must_stop(*places)
    assert [place.rank for place in stop.missing] == [3]
    assert stop.waiting == (1,)


def test_a_backward_waits_for_the_ranks_of_its_group_only() -> None:
    backward: dict[str, Any] = {"phase": "backward", "backward_group": "dp1", "next": {}}
    stop = must_stop(tell(0), tell(1, **backward), tell(2), tell(3, phase="data_wait", backward_group="dp1"))
    assert (stop.number, stop.waiting, [place.rank for place in stop.missing]) == (None, (1,), [3])


def test_where_calls_return_at_once_the_rank_that_is_behind_in_all_of_its_groups_is_named() -> None:
    places = [tell(0, dp=812, tp=41), tell(1, dp=812, tp=41), tell(2, dp=812, tp=41), tell(3, dp=811, tp=41)]
    found = classify_positions(places)
    assert found is not None
    assert describe_live_hang(found) == (
        "Rank 3 has called 811 collectives of group dp (ranks 1, 3), 1 of the others 812; nothing has happened there for "
        "94 s. Rank 3 was last seen in data wait of step 41."
    )


def test_a_rank_that_is_ahead_in_one_group_and_behind_in_another_is_held_up_itself() -> None:
    places = [tell(0, dp=812, tp=40), tell(1, dp=811, tp=41), tell(2, dp=812, tp=41), tell(3, dp=812, tp=41)]
    stop = explain_counts(places)
    assert stop is not None
    assert [place.rank for place in stop.missing] == [0]


@pytest.mark.parametrize("groups", [7, [7], [{"name": 3}], [{"name": "x", "ranks": "y", "ended": -4}], [{}] * 1000])
def test_what_is_told_wrongly_of_groups_is_left_out(groups: Any) -> None:
    place = read_position(0, {"groups": groups, "backward_group": 9}, NOW, None)
    assert place is not None
    assert len(place.counts) < 2
    assert place.backward_group is None
    assert all(not group.ranks and ended == 0 for group, ended in place.counts)


def test_a_job_of_one_group_is_told_without_it() -> None:
    def keep_one(place: RankPosition) -> RankPosition:
        return replace(place, counts=place.counts[:1], group="0")

    still = Still(94 * S, 30 * S, 60 * S)
    waits = replace(keep_one(tell(0, inside="dp")), still=still)
    found = classify_positions([waits, keep_one(tell(1))])
    assert found is not None
    assert describe_live_hang(found).startswith("Rank 1 has not entered allreduce 4 for 94 s; 1 rank waits for it.")
