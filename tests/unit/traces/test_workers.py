"""Imports by several processes, or a cluster, are those of one process; a worker that dies costs a retry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from collector.format.schema import layout
from collector.format.schema.errors import TraceError, UsageError
from collector.traces.format import ReadOptions
from collector.traces.importing import import_trace, import_traces
from collector.traces.limits import ReadLimits
from collector.traces.staging import ShiftTask, shift_rank
from collector.traces.workers import MOST_DEATHS, WORKER_BYTES, Cluster, Here, Processes, choose_jobs
from profiler_server.commands.import_traces import choose_workers
from tests.support.commands import run_command
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace
from tests.support.waiting import wait_for

SECOND_NS = 1_000_000_000


def die_once(mark: Path) -> str:
    """Die at the first try, as if the system had killed this process; a mark that is there already is no try."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def die(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(path: Path) -> None:
    raise TraceError(f"{path} is no trace")


def write_job(folder: Path, ranks: int = 3) -> Path:
    """Write traces of the ranks of a job, each a little later than the one before."""
    folder.mkdir()
    for rank in range(ranks):
        told = {"distributedInfo": {"rank": rank, "world_size": ranks}}
        base_ns = 1_700_000_000 * SECOND_NS + rank * 1_000_000
        write_trace(folder / f"{rank}.json", training_steps(3 + rank), {**told, "baseTimeNanoseconds": base_ns})
    return folder


def read_all(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {"world": run.manifest.world_size, "epoch": run.manifest.epoch_unix_ns}
    for rank in run.ranks:
        one = run.rank(rank)
        names = sorted(path.stem for path in one.folder.glob("*.parquet"))
        assert sorted(path.name for path in one.folder.iterdir()) == sorted(
            ["rank.json", *(f"{name}.parquet" for name in names)]
        )
        found[f"rank {rank}"] = one.manifest.rank, one.manifest.windows, {name: one.table(name) for name in names}
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    import dask

    dask.config.set({"distributed.worker.daemon": False, "distributed.admin.tick.limit": "1h"})
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    try:
        yield local
    finally:
        local.close()


@contextmanager
def asked(cluster: Any) -> Iterator[Cluster]:
    workers = Cluster(cluster.scheduler_address)
    try:
        yield workers
    finally:
        workers.close()


def test_several_processes_make_the_run_that_one_makes(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job")
    shares: list[float] = []
    alone = import_trace(job, tmp_path / "alone")
    together = import_traces([job], tmp_path / "together", ReadOptions(on_progress=shares.append), Processes(2))
    assert read_all(together) == read_all(alone)
    assert together.ranks == (0, 1, 2)
    assert len({together.rank(rank).table("steps")["start_ns"][0].as_py() for rank in together.ranks}) == 3
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len([share for share in shares if share < 0.99]) > 3  # the bar is not full while times are still moved


def test_a_killed_process_costs_a_retry(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    done: list[int] = []
    assert list(Processes(2).run(die_once, [tmp_path / name for name in "ab"], done.append)) == ["a", "b"]
    assert done == [1, 2]


def test_a_file_that_kills_whoever_reads_it_ends_the_import(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=rf"{MOST_DEATHS} processes were killed.*--jobs 1"):
        list(Processes(1).run(die, [tmp_path], lambda done: None))


def test_what_a_file_lacks_is_said_as_by_one_process(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 2)
    (job / "1.json").write_text("no trace", encoding="utf-8")
    said = []
    for workers in (Here(), Processes(2)):
        with pytest.raises(TraceError) as caught:
            import_traces(sorted(job.iterdir()), tmp_path / "run", ReadOptions(), workers)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]


def test_the_time_limit_is_that_of_the_whole_import(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 2)
    with pytest.raises(TraceError, match="--limit-minutes"):
        import_traces([job], tmp_path / "run", ReadOptions(limits=ReadLimits(seconds=1e-3)), Processes(2))


def test_times_are_moved_once_however_often_a_worker_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = import_trace(write_job(tmp_path / "job", 1), tmp_path / "run")
    task = ShiftTask(run.rank(0).folder, 5)
    before = run.table("steps")["start_ns"].to_pylist()
    real: Callable[..., None] = os.replace
    for survived in range(4):
        moved = 0

        def replace(source: Any, target: Any, most: int = survived, **folders: int) -> None:
            nonlocal moved
            if os.path.basename(os.readlink(f"/proc/self/fd/{folders['src_dir_fd']}")) == ".moved":
                moved += 1
                if moved > most:
                    raise KeyboardInterrupt
            real(source, target, **folders)

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            shift_rank(task)
    monkeypatch.setattr(os, "replace", real)
    shift_rank(task)
    assert run.table("steps")["start_ns"].to_pylist() == [start + 5 for start in before]
    assert not (run.rank(0).folder / ".moved").exists()


def test_as_many_processes_as_files_cores_and_memory_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for file in files:
        with file.open("wb") as written:
            written.truncate(20 << 20)
    memory = [100 * WORKER_BYTES]
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": memory[0]}))
    assert [choose_jobs(files, cores) for cores in (1, 2, 8)] == [1, 2, 3]
    assert choose_jobs(files[:1], 8) == 1
    memory[0] = 2 * WORKER_BYTES + 1
    assert choose_jobs(files, 8) == 2
    memory[0] = 1
    assert choose_jobs(files, 8) == 1


def test_a_cluster_makes_the_run_that_one_process_makes(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path / "job")
    monkeypatch.chdir(tmp_path)
    with asked(cluster) as workers:
        there = import_traces(["job"], "there", ReadOptions(), workers)
        with pytest.raises(TraceError, match="is no trace"):
            list(workers.run(refuse, [tmp_path], lambda done: None))
    assert read_all(there) == read_all(import_trace("job", "here"))


def die_last(task: tuple[Path, int, int]) -> int:
    """Note that a task is done; the last one kills its worker once, when the results of all others have been fetched."""
    folder, number, count = task
    with (folder / f"begun{number}").open("a", encoding="utf-8") as file:
        file.write(".")
    mark = folder / "died"
    if number == count - 1 and not mark.exists():
        end_s = time.monotonic() + 60
        while not (folder / f"done{count - 1}").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_what_a_worker_had_done_is_not_read_again_when_it_is_killed(cluster: Any, tmp_path: Path) -> None:
    tasks = [(tmp_path, number, 4) for number in range(4)]
    with asked(cluster) as workers:
        assert list(workers.run(die_last, tasks, lambda done: (tmp_path / f"done{done}").touch())) == [*range(4)]
    assert [(tmp_path / f"begun{number}").read_text(encoding="utf-8") for number in range(4)] == [*"...", ".."]


def test_a_worker_with_another_version_is_named_before_anything_is_read(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.traces.workers.__version__", "9.9.9")
    with pytest.raises(UsageError, match=r"need Stepscope 9\.9\.9; tcp://\S+ has \d"):
        Cluster(cluster.scheduler_address)


def need_what_is_not_there(_: Path) -> None:
    raise RuntimeError("the task graph cannot be unpacked") from ModuleNotFoundError("No module named 'collector'")


def test_a_scheduler_without_stepscope_is_named(cluster: Any, tmp_path: Path) -> None:
    with (
        asked(cluster) as workers,
        pytest.raises(UsageError, match=r"the scheduler and the workers .* need Stepscope .*No module named"),
    ):
        list(workers.run(need_what_is_not_there, [tmp_path], lambda done: None))


def test_wrong_words_are_refused_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--jobs and --dask"):
        choose_workers([tmp_path], 2, "tcp://127.0.0.1:1")
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(UsageError, match=r"stepscope\[fleet\]"):
        choose_workers([tmp_path], None, "tcp://127.0.0.1:1")


def test_recover_on_a_cluster_says_what_it_says_here(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "several"):
        path = build_run(tmp_path / name, RunPlan(steps=12, ranks=3, state="crashed", operators=False))
        steps = layout.table_file(layout.rank_path(path, 1), "steps")
        steps.write_bytes(steps.read_bytes()[:500])
    assert run_command("recover", tmp_path / "one") == 0
    alone = capsys.readouterr().out
    assert run_command("recover", tmp_path / "several", "--dask", cluster.scheduler_address) == 0
    assert capsys.readouterr().out == alone.replace("/one/", "/several/")
    assert "steps.parquet is damaged" in alone
    assert run_command("recover", tmp_path / "one", "--dask", cluster.scheduler_address, "--jobs", 2) == 2
    assert "--jobs and --dask" in capsys.readouterr().err


def wait_long(mark: Path) -> None:
    mark.touch()
    time.sleep(600)


def test_a_scheduler_that_is_killed_in_the_middle_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    contact, marks = tmp_path / "scheduler.json", [tmp_path / "begun0", tmp_path / "begun1"]
    private = ("--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(contact))
    options = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options["env"] = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    dask = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen([*dask, "scheduler", *private, "--port", "0"], **options)  # type: ignore[call-overload]
    wait_for(lambda: contact.exists() and contact.read_text(encoding="utf-8").rstrip().endswith("}"))
    alone = ("--nthreads", "1", "--no-nanny", "--memory-limit", "0")
    worker = subprocess.Popen([*dask, "worker", *private, *alone], **options)  # type: ignore[call-overload]
    workers = Cluster(json.loads(contact.read_text(encoding="utf-8"))["address"])

    def kill() -> None:
        wait_for(marks[0].exists)
        scheduler.kill()

    try:
        threading.Thread(target=kill).start()
        with pytest.raises(TraceError, match=r"scheduler of the cluster at tcp://\S+ was lost.*repeat this"):
            list(workers.run(wait_long, marks, lambda done: None))
    finally:
        workers.close()
        for process in (worker, scheduler):
            process.kill()
            process.wait()
    assert "Traceback" not in capfd.readouterr().err
