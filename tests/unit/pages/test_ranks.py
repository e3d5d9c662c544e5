"""The Ranks page: its sentence, its table, its picture, and runs in which there is nothing to compare."""

from __future__ import annotations

import base64
import dataclasses
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Window
from profiler_server.diagnosis.judging import diagnose
from profiler_server.diagnosis.limits.facts import SLOW_RANK_FRAC
from profiler_server.diagnosis.limits.stragglers import SEEN_BEHIND_FRAC
from profiler_server.facts.ranks import CollectiveRow, Collectives
from profiler_server.figures.heat import build_heat
from profiler_server.format import format_duration, format_share
from profiler_server.page import PageRequest
from profiler_server.pages.ranks import Comparison, RanksPage, build, tables
from profiler_server.pages.ranks.asking import ask
from profiler_server.pages.ranks.tables import view_collectives
from tests.support.jobs import JobPlan, write_job
from tests.support.live import edit_rank, edit_run
from tests.support.machines import build_ranks
from tests.support.ranks_page import show_ranks
from tests.support.runs import MS, RunPlan, build_run
from tests.support.waiting import wait_for


def show(path: Path, **query: str) -> RanksPage:
    return show_ranks(open_run(path), query)


def compare(path: Path, **query: str) -> Comparison:
    """Return what is shown of the ranks; those of very many are waited for."""
    return wait_for(lambda: None if (page := show(path, **query)).progress else page.comparison)


def test_the_slow_rank_and_the_phase_that_grew_are_named(tmp_path: Path) -> None:
    shown = compare(build_ranks(tmp_path / "run", 4, slow=3))
    assert shown.sentence == (
        "Rank 3 holds 3 others up 12.0 ms a step (15.0 %): data wait. Its data wait takes 12.4 ms against 400 µs."
    )
    assert shown.detail.startswith(
        "It was the last in 100.0 % of 57 steps, and is behind the median of the others by 15.0 % of the step."
    )
    assert "6 collectives were listed. Rank 3 came last to all 6. Rank " in shown.detail
    assert shown.tone == "bad"
    (slow,) = [row for row in shown.table.rows if row.is_behind]
    assert (slow.figures.rank, slow.behind) == (3, "+15.0 %")
    notes = {stat.label: stat.note for stat in shown.stats}
    assert notes["Mean step"] == "the same on all ranks"
    assert notes["Slowest rank"] == f"{format_duration(slow.own_ns)} outside of collectives"
    assert shown.map.heat is not None
    alpha = read_alpha(shown.map.heat.image)
    assert alpha.shape == (4, 60)
    assert alpha[3].min() > alpha[:3].max()
    assert shown.map.data["ranks"] == [0, 1, 2, 3]


def test_ranks_that_are_alike_are_said_to_be(tmp_path: Path) -> None:
    shown = compare(build_ranks(tmp_path / "run", 2))
    assert shown.sentence == (
        f"The ranks are alike: none is behind the others by as much as {format_share(SEEN_BEHIND_FRAC)} of the step. A rank "
        f"behind by {format_share(SLOW_RANK_FRAC)} of the step or more would be named."
    )
    assert shown.tone == "good"
    assert not any(row.is_behind for row in shown.table.rows)


def test_the_table_sorts_by_any_column_and_says_where_there_is_none_of_a_name(tmp_path: Path) -> None:
    path = build_ranks(tmp_path / "run", 3, slow=1)
    tables = {sort: compare(path, sort=sort).table for sort in ("", "-rank", "-own", "own", "<script>")}
    order = {sort: [row.figures.rank for row in table.rows] for sort, table in tables.items()}
    assert (order[""], order["-rank"], order["<script>"]) == ([0, 1, 2], [2, 1, 0], [0, 1, 2])
    assert (order["-own"][0], order["own"][2]) == (1, 1)
    assert "no column" in tables["<script>"].problem


def test_one_process_is_told_how_to_record_several(tmp_path: Path) -> None:
    notice = show(build_run(tmp_path / "run")).notice
    assert notice is not None
    assert "torchrun" in notice.remedy


def test_a_rank_that_wrote_elsewhere_is_told_apart_from_a_run_of_one(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    edit_run(run, world_size=8)
    notice = show(run).notice
    assert notice is not None
    assert "8 processes" in notice.reason
    assert "same output_path" in notice.reason


def test_a_damaged_rank_says_why_beside_the_others(tmp_path: Path) -> None:
    run = build_ranks(tmp_path / "run", 3, slow=2)
    layout.table_file(layout.rank_path(run, 1), "steps").write_bytes(b"PAR1 no")
    shown = compare(run)
    assert [bool(row.figures.reason) for row in shown.table.rows] == [False, True, False]
    assert shown.sentence.startswith("Rank 2 holds")


def test_a_collective_is_summed_over_all_ranks_with_who_came_last_most_often(tmp_path: Path) -> None:
    shown = compare(write_job(tmp_path / "run", JobPlan(ranks=3, steps=20, slow=(1,), slow_frac=0.3)))
    assert shown.collectives is not None
    (total,) = shown.collectives.sums
    assert (total.name, total.ranks, total.count, total.rank) == ("allreduce", "3", "20", 1)
    assert (total.late, total.bytes) == ("20 of 20", "25.0 MiB")
    # 25 MiB in 2 ms, of which a ring of three ranks moves 4 / 3 over each link.
    assert (total.algorithm, total.bandwidth) == ("12.2 GiB/s", "16.3 GiB/s")
    assert not shown.collectives.in_windows


def test_a_collective_of_very_many_ranks_is_one_line_that_covers_all_of_them() -> None:
    row = CollectiveRow(0, "allreduce", 1, 0, 5, None, None, 0, None, None, None)
    rows = [dataclasses.replace(row, rank=rank) for rank in range(450)]
    table = view_collectives(Collectives(tuple(rows)))
    assert table is not None
    assert len(table.rows) == 400
    assert (table.sums[0].ranks, table.sums[0].rank, table.sums[0].wait) == ("450", None, "n/a")


def test_the_collectives_that_waited_for_a_rank_are_not_among_the_rows_left_out() -> None:
    row = CollectiveRow(0, "allreduce", 9, 9, 5, 1, 1, 0, None, None, None)
    rows = [dataclasses.replace(row, name=name, rank=rank) for rank in range(450) for name in ("allgather", "reduce")]
    rows[-1] = dataclasses.replace(rows[-1], late=9)
    table = view_collectives(Collectives(tuple(rows)))
    assert table is not None
    assert (table.rows[0].name, table.rows[0].rank, table.rows[0].late) == ("reduce", 449, "9 of 9")
    assert (table.rows[1].name, table.rows[1].rank) == ("allgather", 0)
    assert table.note.endswith("Of 900 rows, the 400 whose rank came last most often are shown.")


def test_while_ranks_are_read_their_number_stands_once(tmp_path: Path) -> None:
    run = open_run(write_job(tmp_path / "run", JobPlan(ranks=3, steps=12)))
    whole = ask(PageRequest(run, "run", 0, run.ranks, {}))
    page = build(dataclasses.replace(whole, is_whole=False, wanted=1024))
    assert page.progress == "3 of 1,024 ranks are read."
    assert page.comparison is not None
    assert page.comparison.stats[0].label == "Mean step"


def test_a_collective_that_one_rank_alone_called_has_the_mean_of_a_call_too() -> None:
    row = CollectiveRow(0, "allreduce", 2, 0, 2 * MS, None, None, 0, 2048, None, None)
    table = view_collectives(Collectives((row, dataclasses.replace(row, rank=1, name="barrier", bytes=None))))
    assert table is not None
    assert [(line.own, line.bytes, line.rank) for line in table.sums] == [
        ("1.00 ms", "1.00 KiB", None),
        ("1.00 ms", "n/a", None),
    ]
    assert [(line.own, line.bytes, line.rank) for line in table.rows] == [
        ("2.00 ms", "2.00 KiB", 0),
        ("2.00 ms", "n/a", 1),
    ]


def test_collectives_and_held_time_that_were_not_seen_are_states_of_their_own(tmp_path: Path) -> None:
    shown = compare(build_run(tmp_path / "run", RunPlan(ranks=2)))
    assert shown.collectives is None
    assert {stat.label: stat.value for stat in shown.stats}["Held in collectives"] == "not seen"


def test_of_very_many_ranks_those_come_first_that_hold_the_others_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_PAGE", 8)
    path = write_job(tmp_path / "run", JobPlan(ranks=20, steps=12, slow=(17,), slow_frac=0.3, ranks_per_host=8))
    shown = compare(path)
    assert shown.sentence.startswith("Rank 17 holds 19 others up")
    assert (shown.table.rows[0].figures.rank, len(shown.table.rows)) == (17, 8)
    assert (shown.table.page, shown.table.pages, shown.table.total) == (1, 3, 20)
    assert shown.map.data["ranks"][0] == 17
    assert "Shown are 8 of 20 ranks" in shown.map.caption
    last = compare(path, page="3", sort="rank")
    assert [row.figures.rank for row in last.table.rows] == [16, 17, 18, 19]
    assert compare(path, page="99").table.page == 3


def read_alpha(address: str) -> np.ndarray:
    """Decode the opacity of a PNG of `build_heat`."""
    data = base64.b64decode(address.partition(",")[2])
    width, height = struct.unpack(">II", data[16:24])
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    lines = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + length]), np.uint8).reshape(height, 1 + 4 * width)
    return lines[:, 1:].reshape(height, width, 4)[..., 3].astype(int)


def test_noise_alone_is_never_red() -> None:
    values = np.array([[100.0, 101.0, 99.0], [100.0, 102.0, np.nan]])
    alpha = read_alpha(build_heat(np.arange(3), ["0", "1"], values).image)
    assert alpha.max() < 60
    assert alpha[1, 2] == 0


def test_the_timeline_of_the_ranks_opens_at_a_step_that_all_of_them_recorded_in_detail(tmp_path: Path) -> None:
    path = write_job(tmp_path / "run", JobPlan(ranks=3, steps=40, slow=(1,), slow_frac=0.3))
    light = compare(path).example
    for rank, first in enumerate((30, 31, 32)):
        edit_rank(path, rank, windows=(Window(first, first + 4, 0, 1),))
    detailed = compare(path).example
    assert light is not None
    assert detailed is not None
    assert detailed.ranks == light.ranks
    assert detailed.step in (32, 33, 34)


def test_one_very_long_step_does_not_make_all_others_alike() -> None:
    values = np.tile(100.0 * MS, (4, 40))
    values[2] = 150.0 * MS
    values[:, 7] = 90_000.0 * MS
    heat = build_heat(np.arange(40), ["0", "1", "2", "3"], values)
    alpha = np.delete(read_alpha(heat.image), 7, axis=1)
    assert alpha[2].min() > 2 * alpha[[0, 1, 3]].max()
    assert (heat.beyond, heat.most_ns) == (4, 90_000.0 * MS)
    assert heat.high_ns == pytest.approx(150.0 * MS)


def test_the_caption_of_the_map_tells_a_cell_beyond_its_scale(tmp_path: Path) -> None:
    path = write_job(tmp_path / "run", JobPlan(ranks=4, steps=40, slow=(2,), slow_frac=0.3))
    steps = layout.table_file(layout.rank_path(path, 1), "steps")
    rows = pq.read_table(steps).to_pylist()
    rows[20]["forward_ns"] += 90 * 10**9
    rows[20]["duration_ns"] += 90 * 10**9
    parts.write_table(parts.build_table_from_rows("steps", rows), steps)
    caption = compare(path).map.caption
    assert "1 cell is far beyond that: 90.1 s (violet)" in caption


def test_a_rank_that_wrote_nothing_and_one_too_many_are_named(tmp_path: Path) -> None:
    path = write_job(tmp_path / "run", JobPlan(ranks=4, steps=12))
    shutil.rmtree(layout.rank_path(path, 2))
    assert "1 of 4 ranks has not written anything: rank 2." in compare(path).notes
    edit_run(path, world_size=2)
    shown = compare(path)
    assert any("says that it has 2 ranks; 3 are here" in note for note in shown.notes)
    assert (shown.stats[0].value, shown.stats[0].note.split(",")[0]) == ("3", "of 3")
    edit_run(path, world_size=1_000_000)
    assert any(note.endswith(" 9, 10 and 999,989 more.") for note in compare(path).notes)


def test_a_job_that_says_that_it_has_one_rank_has_a_slow_one_all_the_same(tmp_path: Path) -> None:
    """The page counts the ranks that are here, and so do the rules."""
    path = write_job(tmp_path / "run", JobPlan(ranks=4, steps=40, slow=(3,), slow_frac=0.2))
    edit_run(path, world_size=1)
    assert compare(path).sentence.startswith("Rank 3 holds 3 others up")
    assert "fixed_straggler" in {found.rule for found in diagnose(open_run(path), 0).suggestions}
