"""The sidecar answers libkineto as its daemon, and makes a window of the trace that libkineto writes."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.ring.on_demand import SOCKET, is_own_folder, make_folder, remove_folder
from collector.ring.windows import find_windows, read_announced, read_window, trace_file
from collector.sidecar import on_demand
from collector.sidecar.on_demand import OnDemand

PID = 4242
MS = 1_000_000


class Libkineto:
    """Asks for its configuration as libkineto does: own pid first, then those of its ancestors."""

    def __init__(self, folder: Path) -> None:
        self._server = str(folder / SOCKET)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "client"))
        self._socket.settimeout(10.0)

    def ask(self, pid: int = PID) -> dict[str, str]:
        request = struct.pack("<iiq3i", 3, 3, 0, pid, PID, 1)
        self._socket.sendto(struct.pack("<Q32s", len(request), b"req") + request, self._server)
        answer = self._socket.recv(65536)
        size, kind = struct.unpack_from("<Q32s", answer)
        assert (size, kind.rstrip(b"\0")) == (len(answer) - 40, b"req")
        return dict(line.split("=", 1) for line in answer[40:].decode().splitlines())

    def send_damage(self) -> None:
        self._socket.sendto(b"\1\2", self._server)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    places = tmp_path / "sockets", tmp_path / "events"
    for place in places:
        place.mkdir()
    return places


@pytest.fixture
def daemon(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[OnDemand]:
    monkeypatch.setattr(on_demand, "LEAD_S", 0.0)
    daemon = OnDemand(*places, PID)
    yield daemon
    daemon.close()


@pytest.fixture
def libkineto(daemon: OnDemand, places: tuple[Path, Path]) -> Iterator[Libkineto]:
    client = Libkineto(places[0])
    yield client
    client.close()


def test_nothing_is_ordered_from_a_libkineto_that_was_never_heard(daemon: OnDemand) -> None:
    assert not daemon.order("outlier", 3, 2.0 * MS)


def test_an_order_is_answered_once_and_to_the_training_process_only(daemon: OnDemand, libkineto: Libkineto) -> None:
    assert libkineto.ask() == {}
    assert daemon.order("outlier", 3, 10.0 * MS)
    assert libkineto.ask(pid=99) == {}
    assert libkineto.ask()["ACTIVITIES_DURATION_MSECS"] == "80"
    assert libkineto.ask() == {}
    assert not daemon.order("drift", 3, 10.0 * MS)


def test_damage_is_not_answered_and_harms_nothing(daemon: OnDemand, libkineto: Libkineto) -> None:
    libkineto.send_damage()
    assert libkineto.ask() == {}


def test_a_trace_that_is_whole_becomes_a_window_with_its_steps_and_its_cost(
    daemon: OnDemand, libkineto: Libkineto, places: tuple[Path, Path]
) -> None:
    libkineto.ask()
    daemon.order("outlier", 1, 10.0 * MS)
    config = libkineto.ask()
    start = int(config["PROFILE_START_TIME"]) * MS
    assert read_announced(places[1]) == ((start, start + 40 * MS),)
    for number in range(5):  # the second and the third lie inside
        daemon.see(7 + number, start + (15 * number - 10) * MS, start + (15 * number + 5) * MS)
    trace = Path(config["ACTIVITIES_LOG_FILE"].replace(".json", f"_{PID}.json"))
    trace.write_text('{"traceEvents": [')
    time.sleep(0.06)
    assert [daemon.poll(10.0 * MS), daemon.poll(10.0 * MS)] == ["", ""]
    assert find_windows(places[1]) == ()
    trace.write_text('{"traceEvents": []}\n')
    assert [daemon.poll(10.0 * MS), daemon.poll(10.0 * MS)] == ["", ""]
    (note,) = map(read_window, find_windows(places[1]))
    assert (note.first_step, note.trigger, note.stall_ns) == (8, "outlier", 10 * MS)
    assert note.ends_unix_ns == (start + 20 * MS, start + 35 * MS)
    assert trace_file(places[1], 8).read_text() == '{"traceEvents": []}\n'
    assert not trace.exists()


def test_nothing_is_left_behind(places: tuple[Path, Path]) -> None:
    OnDemand(*places, PID).close()
    assert not places[0].exists()


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OnDemand(tmp_path / "gone", tmp_path, PID)


@pytest.mark.parametrize("name", ["stepscope-od-x", "elsewhere/stepscope-od-x"])
def test_a_folder_is_used_only_where_profiler_run_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (tmp_path / "stepscope-od-link").symlink_to(folder)
    assert is_own_folder(folder) == (folder.parent == tmp_path)
    assert not is_own_folder(tmp_path)
    assert not is_own_folder(tmp_path / "stepscope-od-link")


def test_removing_a_folder_leaves_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "kineto.conf").write_text("")
    (tmp_path / "thesis.txt").write_text("")
    remove_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_new_folder_sweeps_those_of_processes_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mine = make_folder()
    gone = tmp_path / f"stepscope-od-{2**22 + 1}-1"
    gone.mkdir()
    (gone / "kineto.conf").write_text("")
    assert sorted(tmp_path.iterdir()) == sorted([mine, gone])
    later = make_folder()
    assert sorted(tmp_path.iterdir()) == sorted([mine, later])
