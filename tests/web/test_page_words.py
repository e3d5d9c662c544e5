"""What pages say of a part of a job's ranks and of a run that was cut off."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from collector.traces.importing import import_trace
from profiler_server.web.report_file import render_report
from tests.support.asking import Asker, read_words
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace


def _import_part(tmp_path: Path, *ranks: int) -> None:
    told = [(rank, {"distributedInfo": {"rank": rank, "world_size": 128}}) for rank in ranks]
    files = [write_trace(tmp_path / f"rank{rank}.json", training_steps(), head) for rank, head in told]
    import_trace(files, tmp_path / "base/part")


def test_a_part_of_a_jobs_ranks_is_told_as_such(tmp_path: Path) -> None:
    _import_part(tmp_path, 3, 7)
    asker = Asker(tmp_path / "base")
    overall = read_words(asker.ask("/runs/part/").text)
    assert overall.count("2 of 128 ranks") == 2  # among the facts and in the footer
    assert "126 of 128 ranks were not imported" in read_words(asker.ask("/runs/part/ranks").text)
    assert " 2 of 128 " in read_words(asker.ask("/").text)


def test_a_single_rank_of_many_is_not_called_a_folder_that_it_wrote(tmp_path: Path) -> None:
    _import_part(tmp_path, 3)
    words = read_words(Asker(tmp_path / "base").ask("/runs/part/ranks").text)
    assert "The job had 128 ranks, and the trace of rank 3 alone was imported." in words
    assert "output_path" not in words


def test_a_cut_off_run_that_is_recovered_is_told_as_such(tmp_path: Path) -> None:
    run = build_run(tmp_path / "cut", RunPlan(steps=8, state="crashed"))
    asker = Asker(tmp_path)
    for page in ("/", "/runs/cut/"):
        assert "Crashed, recovered" in read_words(asker.ask(page).text), page
    assert "crashed, recovered · 1 rank ·" in read_words(render_report(open_run(run), redact=False))
