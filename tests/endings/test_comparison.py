"""The comparison of made-up trials: what must be the same, and what may differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from tests.endings.cells import KINDS, WAYS, Cell
from tests.endings.comparison import Limits, compare, has_unseen
from tests.endings.forms import name_files
from tests.endings.tables import render_table
from tests.endings.trial import Trial

OUT = "step 12 of rank 0, loss 0x1.8p+0, weights w0a1b\nlast step of rank 0\n"
TRACEBACK = """Traceback (most recent call last):
  File "<jobs>/plain.py", line 22, in <module>
    main()
ValueError: planted
"""
TRIAL = Trial("bare", code=1, end_s=1.0, out=OUT, err=TRACEBACK, bytes={"checkpoint.0.pt": "aa"})
RECORDED = dataclasses.replace(TRIAL, door="run", err="stepscope: recorded 12 steps in <trial>/run\n" + TRACEBACK)


def make_cell(kind: str = "plain", way: str = "exception") -> Cell:
    found = next(one for one in KINDS if one.name == kind)
    return Cell(found, next(one for one in WAYS if one.name == way), "idle", "run", 1)


def find_differences(*recorded: Trial, bare: Sequence[Trial] = (TRIAL,), cell: Cell | None = None) -> tuple[str, ...]:
    return compare(cell or make_cell(), bare, recorded).differences


def test_a_recorded_trial_may_add_lines_of_ours_and_take_two_seconds_more() -> None:
    assert find_differences(dataclasses.replace(RECORDED, end_s=2.9)) == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"code": 0}, "code 0 instead of 1"),
        ({"bytes": {"checkpoint.0.pt": "ab"}}, "bytes: - ('checkpoint.0.pt', 'aa')"),
        ({"bytes": {}}, "bytes: - ('checkpoint.0.pt', 'aa')"),
        ({"out": OUT.replace("w0a1b", "w0a1c")}, "out: - step 12 of rank 0, loss 0x1.8p+0, weights w0a1b"),
        ({"out": OUT + "one more\n"}, "out: + one more"),
        ({"err": TRACEBACK.replace("ValueError", '  File "x.py", line 1, in call\nValueError')}, "err: +   File"),
        ({"err": TRACEBACK.replace("<jobs>/plain.py", "/x/collector/edge.py")}, 'a traceback shows File "/x/collector'),
        ({"end_s": None, "code": None}, "it does not end"),
        ({"end_s": 3.1}, "ends 2.1 s later (median)"),
        ({"left": ("still runs: x",)}, "left behind: still runs: x"),
        ({"files": ("work/core.123",)}, "a file outside of the run: work/core.*"),
    ],
)
def test_what_a_user_would_see_differs(change: dict[str, object], text: str) -> None:
    found = find_differences(dataclasses.replace(RECORDED, **change))  # type: ignore[arg-type]
    assert any(text in one for one in found), found


def test_one_late_end_of_many_differs_by_the_worst() -> None:
    late = dataclasses.replace(RECORDED, end_s=11.5)
    assert find_differences(RECORDED, RECORDED, late) == ("ends 10.5 s later (worst)",)


def test_a_loaded_machine_is_not_timed() -> None:
    late = dataclasses.replace(RECORDED, end_s=50.0)
    assert compare(make_cell(), [TRIAL], [late], Limits(None, None)).differences == ()


def test_a_form_that_bare_trials_show_as_often_is_none_of_ours() -> None:
    aborted = dataclasses.replace(TRIAL, code=-6)
    assert find_differences(RECORDED, dataclasses.replace(RECORDED, code=-6), bare=(TRIAL, aborted)) == ()
    assert not has_unseen(make_cell(), (TRIAL, aborted), (RECORDED,))
    assert has_unseen(make_cell(), (TRIAL,), (dataclasses.replace(RECORDED, code=-6),))


def test_a_form_that_comes_more_often_than_chance_allows_differs() -> None:
    aborted = dataclasses.replace(TRIAL, code=-6)
    bare = (TRIAL,) * 8 + (aborted,)
    (text,) = find_differences(*(dataclasses.replace(RECORDED, code=-6),) * 9, bare=bare)
    assert text == "9 of 9, bare 1 of 9: code -6 instead of 1"


def test_a_signal_may_meet_another_line_but_not_leave_another_error() -> None:
    cell = make_cell(way="Ctrl-C")
    bare = dataclasses.replace(TRIAL, err=TRACEBACK.replace("ValueError: planted", "KeyboardInterrupt"))
    later = OUT + "step 13 of rank 0, loss 0x1.9p+0, weights wff\n"
    moved = dataclasses.replace(bare, door="run", err=bare.err.replace("line 22", "line 9"), out=later)
    assert find_differences(moved, bare=(bare,), cell=cell) == ()
    other = dataclasses.replace(moved, err=moved.err.replace("KeyboardInterrupt", "RuntimeError: dead"))
    (text,) = find_differences(other, bare=(bare,), cell=cell)
    assert "err: - KeyboardInterrupt; + RuntimeError" in text


def test_other_ranks_may_fail_otherwise_but_the_planted_error_stays() -> None:
    cell = make_cell("ddp")
    other = TRACEBACK.replace("ValueError: planted", "RuntimeError: Connection closed by peer")
    assert find_differences(dataclasses.replace(RECORDED, err=TRACEBACK + other), cell=cell) == ()
    (text,) = find_differences(dataclasses.replace(RECORDED, err=other), cell=cell)
    assert "tracebacks: - Traceback" in text


def test_the_table_has_a_row_for_each_cell() -> None:
    result = compare(make_cell(), [TRIAL], [dataclasses.replace(RECORDED, code=0)])
    row = render_table([result]).splitlines()[-1]
    assert row.startswith("| plain | exception | idle | run | 1 of 1 | 1 of 1 | 1.0 s | 1.0 s | 1 of 1: code 0")


def test_what_is_random_in_a_name_is_left_out_also_where_it_has_no_digit() -> None:
    names = (f"tmp/pytorch-errorfile-{letters}.pickle" for letters in ("boetfkrf", "ub6zf2si"))
    assert len({name_files(dataclasses.replace(TRIAL, files=(name,))) for name in names}) == 1
