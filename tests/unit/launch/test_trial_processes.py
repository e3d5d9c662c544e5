"""The process of a trial runs in its turns, writes nothing of the user's, and ends with all that it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collector.launch.origin import PLAN_VARIABLE
from collector.launch.trying.applying import Change
from collector.launch.trying.inside import TRIAL_VARIABLE, Plan, Span
from collector.launch.trying.process import Crew, TurnFailed

SCRIPT = """
import json, os, pathlib, shutil, sqlite3, subprocess, sys
import numpy as np
import torch

torch.set_num_threads(1)
os.makedirs("out/deep", exist_ok=True)
with open("out/log.txt", "a") as file:
    file.write("first\\n")
with open("data.txt", "a") as file:
    file.write(" and more")
assert open("data.txt").read() == "data.txt and more"
pathlib.Path("kept.txt").write_text("changed")
assert open("kept.txt").read() == "changed", "the script reads what it wrote"
os.remove("gone.txt")
shutil.copy("data.txt", "out/copy.txt")
np.save("out/array.npy", np.zeros(3))
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.save(net.state_dict(), "out/deep/net.pt")
torch.load("out/deep/net.pt")
assert os.path.exists("out/deep/net.pt")
os.rename("out/log.txt", "out/log.old")
assert {"kept.txt", "data.txt", "out"} <= set(os.listdir(".")) and "gone.txt" not in os.listdir(".")
shutil.rmtree("old")
assert not os.path.exists("old/one.txt")
sqlite3.connect("data.db").execute("create table t (x int)")
os.chdir("out")
assert open("../data.txt").read() == "data.txt and more" and os.path.basename(os.getcwd()) == "out"
os.chdir("..")
print(subprocess.run(["touch", "by-another-program"]).returncode, file=sys.stderr)
print("threads", torch.get_num_threads(), os.environ["STEPSCOPE_TRIAL"], file=sys.stderr)
for step in range(1000):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path, Path]]:
    """The home of a script, a scratch folder and the folder of a trial. A socket of a worker needs a short path."""
    with tempfile.TemporaryDirectory() as short:
        home, scratch, folder = tmp_path / "home", Path(short), tmp_path / "folder"
        for path in (home, folder, scratch / "tmp"):
            path.mkdir()
        yield home, scratch, folder


def _make_environment(scratch: Path, folder: Path, change: Change) -> dict[str, str]:
    plan = Plan(change, {"updates": 10}, str(scratch), str(folder), str(scratch))
    return {**os.environ, PLAN_VARIABLE: plan.encode(), TRIAL_VARIABLE: "1", "TMPDIR": str(scratch / "tmp")}


@pytest.mark.parametrize("kind", ["fresh", "forked"])
def test_a_trial_leaves_nothing_behind_and_runs_in_turns(
    kind: str, folders: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, scratch, folder = folders
    for name in ("kept.txt", "gone.txt", "data.txt"):
        (home / name).write_text(name)
    (tmp_path / "train.py").write_text(SCRIPT)
    (home / "old").mkdir()
    (home / "old" / "one.txt").write_text("one")
    before = _read_all(home)
    environment = _make_environment(scratch, folder, {"threads": 2})
    words = [f"--output={folder}", str(tmp_path / "train.py")]
    monkeypatch.chdir(home)
    with Crew() as crew:
        if kind == "forked":
            crew.warm_up(["numpy", "torch"], environment, scratch / "log.txt")
            assert crew.is_warm, (scratch / "log.txt").read_text()
        member = crew.start(words, environment, folder, folder / "log.txt")
        try:
            reports = [member.wait(300.0), *(member.take(Span(20), 60.0) for _ in range(2))]
        except TurnFailed:
            pytest.fail((folder / "log.txt").read_text())
        assert _stands_still(member.pid)
    assert not psutil.pid_exists(member.pid)
    log = (folder / "log.txt").read_text()
    assert "threads 2 1" in log
    by_another = (home / "by-another-program").exists()
    assert {name: text for name, text in _read_all(home).items() if name != "by-another-program"} == before
    assert [(len(each["steps_ns"]), len(each["losses"])) for each in reports] == [(10, 11), (20, 20), (20, 20)]
    assert reports[0]["losses"][0] > reports[-1]["losses"][-1]
    assert reports[0]["is_guarded"] == (not by_another)


def _read_all(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def _stands_still(pid: int) -> bool:
    """Return whether a process stops soon: a busy machine takes its time."""
    end = time.monotonic() + 20.0
    while (status := psutil.Process(pid).status()) != psutil.STATUS_STOPPED and time.monotonic() < end:
        time.sleep(0.01)
    return bool(status == psutil.STATUS_STOPPED)


SPAWNER = """
import subprocess, sys, time, torch
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=sys.argv[1] != "in")
print(child.pid, flush=True)
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(100):
    net(torch.ones(2)).sum().backward()
    optimizer.step()
    if sys.argv[1] == "hangs":
        time.sleep(600)
sys.argv[1] == "fails" and 1 / 0
"""


@pytest.mark.parametrize("how", ["ends", "fails", "hangs", "in"])
def test_a_trial_ends_with_all_that_it_started(how: str, folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, scratch, folder = folders
    (tmp_path / "train.py").write_text(SPAWNER)
    environment = _make_environment(scratch, folder, {})
    with Crew() as crew:
        words = [f"--output={folder}", str(tmp_path / "train.py"), how]
        member = crew.start(words, environment, folder, folder / "log.txt")
        if how == "hangs":
            while not (log := folder / "log.txt").read_text().strip():
                time.sleep(0.05)
            with pytest.raises(TurnFailed) as error:
                member.wait(3.0)
            assert error.value.code is None
        else:
            assert len(member.wait(300.0)["steps_ns"]) == 10
            assert _stands_still(int((log := folder / "log.txt").read_text().split()[0]))
        if how == "fails":
            with pytest.raises(TurnFailed) as error:
                member.take(Span(1000), 60.0)
            assert error.value.code == 1
        elif how == "ends":
            assert member.take(Span(1000), 60.0)["is_over"]
        crew.end(member)
        assert not psutil.pid_exists(int(log.read_text().split()[0]))
        assert not psutil.pid_exists(member.pid)


LOADING = """
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.ones(4000, 2)), batch_size=2, num_workers=2)
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for (rows,) in loader:
        net(rows).sum().backward()
        optimizer.step()
"""
TRYING = """
import json, sys, time
from pathlib import Path
from collector.launch.trying.process import Crew

words, environment, folder, is_forked = json.loads(sys.argv[1])
with Crew() as crew:
    if is_forked:
        crew.warm_up(["torch"], environment, Path(folder, "warm.txt"))
    member = crew.start(words, environment, Path(folder), Path(folder, "log.txt"))
    member.wait(300.0)
    print(json.dumps([each.pid for each in member.list_processes()]), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a process learns of its parent's end on Linux only")
@pytest.mark.parametrize("is_forked", [False, True], ids=["fresh", "forked"])
def test_nothing_stands_still_for_ever_when_the_search_is_killed(
    is_forked: bool, folders: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    _, scratch, folder = folders
    (tmp_path / "train.py").write_text(LOADING)
    words = [f"--output={folder}", str(tmp_path / "train.py")]
    asked = json.dumps([words, _make_environment(scratch, folder, {}), str(folder), is_forked])
    with subprocess.Popen([sys.executable, "-c", TRYING, asked], stdout=subprocess.PIPE) as searching:
        assert searching.stdout is not None
        pids = json.loads(searching.stdout.readline())
        assert len(pids) >= 3, "the script and its workers"
        searching.kill()
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert not psutil.wait_procs(left, timeout=20.0)[1]


FORKING = """
import os, sys, time, socket, torch
from collector.launch.trying import warm

def become(request):
    before = os.getppid()
    time.sleep(0.5)
    print(before == os.getppid(), flush=True)
    leave(0)

leave, os._exit = os._exit, lambda code: (time.sleep(0.2), leave(code))
warm._become = become
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.send(b"{}")
ours.shutdown(socket.SHUT_WR)
warm.serve(theirs)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="trials are forks on Linux only")
def test_a_forked_trial_begins_when_its_parent_is_the_one_that_stays() -> None:
    """A trial ends with its parent: the process between the two forks must be gone before."""
    found = subprocess.run([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert found.stdout == "True\n"
