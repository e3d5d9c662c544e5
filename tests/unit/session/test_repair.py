"""What recovery does with damaged files: set aside, made again where a source is left, said where none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector import open_run
from collector.format.schema import layout
from collector.format.schema.errors import OptionError, TableBrokenError
from collector.sidecar.repair import repair_manifest, repair_rank
from tests.support.runs import RunPlan, build_run


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan(steps=12))


def test_a_whole_run_is_left_as_it_is(run_path: Path) -> None:
    before = {path: path.read_bytes() for path in run_path.rglob("*.*") if path.is_file()}
    assert repair_manifest(run_path) == ""
    assert repair_rank(layout.rank_path(run_path, 0)) == ()
    assert {path: path.read_bytes() for path in run_path.rglob("*.*") if path.is_file()} == before


def test_damaged_steps_are_made_again_from_their_phases(run_path: Path) -> None:
    folder = layout.rank_path(run_path, 0)
    columns = ["step", "start_ns", "duration_ns", "data_wait_ns", "forward_ns", "batch"]
    before = open_run(run_path).frame("steps")
    truncate(layout.table_file(folder, "steps"))
    (said,) = repair_rank(folder)
    after = open_run(run_path).frame("steps")
    assert f"{len(after):,} steps made again" in said
    assert after[columns].equals(before[before.step.isin(after.step)][columns])
    assert (folder / "steps.parquet.broken").is_file()
    assert [warn.code for warn in open_run(run_path).rank(0).manifest.warnings] == ["repaired_steps"]
    assert repair_rank(folder) == ()


def test_a_table_without_a_source_is_said_to_be_lost(run_path: Path) -> None:
    folder = layout.rank_path(run_path, 0)
    truncate(layout.table_file(folder, "stages"))
    assert repair_rank(folder) == ("stages was damaged, the file is set aside; nothing is left to make it again from",)
    assert "set it aside" in open_run(run_path).rank(0).status("stages").reason


@pytest.mark.parametrize("text", ["{", "{}", "[]", ""])
def test_damaged_manifests_are_made_again(run_path: Path, text: str) -> None:
    folder = layout.rank_path(run_path, 0)
    layout.run_file(run_path).write_text(text)
    layout.rank_file(run_path, 0).write_text(text)
    assert "made again" in repair_manifest(run_path)
    assert "rank.json was damaged" in repair_rank(folder)[0]
    run = open_run(run_path)
    assert (run.manifest.name, len(run.frame("steps"))) == ("run", 12)
    assert run.state == "imported"  # nothing is left that tells a recording from an import


def test_a_finished_rank_that_lost_its_manifest_was_not_cut_off(run_path: Path) -> None:
    for events_left, state in ((False, "complete"), (True, "crashed")):
        layout.rank_file(run_path, 0).write_text("{")
        if events_left:
            layout.events_path(layout.rank_path(run_path, 0)).mkdir()
        repair_rank(layout.rank_path(run_path, 0))
        assert open_run(run_path).state == state


def test_a_run_without_ranks_has_nothing_left(run_path: Path) -> None:
    layout.run_file(run_path).write_text("{")
    layout.rank_path(run_path, 0).rename(run_path / "elsewhere")
    with pytest.raises(TableBrokenError, match="nothing is left"):
        repair_manifest(run_path)


def test_a_manifest_that_lacks_keys_names_them_and_the_command(run_path: Path) -> None:
    layout.run_file(run_path).write_text('{"id": "x", "name": "x"}')
    with pytest.raises(TableBrokenError) as caught:
        open_run(run_path)
    assert "lacks created_unix_ns, epoch_unix_ns, source, world_size, host;" in str(caught.value)
    assert f"profiler-server recover {run_path}" in str(caught.value)
    assert "__init__" not in str(caught.value)


def test_an_unknown_table_names_the_nearest_and_the_list(run_path: Path) -> None:
    with pytest.raises(OptionError, match=r"did you mean 'steps'.*stages, steps, tracks"):
        open_run(run_path).frame("stps")
