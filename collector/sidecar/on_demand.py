"""Detailed windows that the training thread does not wait for: libkineto takes them on a thread of its own.

Where it was armed before torch was imported (`collector.launch.on_demand`), libkineto asks a daemon once a second, over
a datagram socket, whether a trace is wanted. The sidecar is that daemon. It answers with a time to begin and a length,
and libkineto writes the trace to a file. In process, saving a trace of 200,000 events holds the training for a second
or more; this way no step is held, they are only slower while the window is open.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from collector.ring.on_demand import SOCKET, remove_folder
from collector.ring.windows import WindowNote, announce_window, trace_file, write_window

LEAD_S = 3.5
"""From the answer to the begin of the window: libkineto takes up to a second to hear of it and one to prepare."""
SHORTEST_MS, LONGEST_MS = 20, 2000
SLOWDOWN = 2.0
"""A step takes about so many times as long while its operators are recorded."""
_SILENT_S = 5.0
_GIVE_UP_S = 60.0
_HEADER = struct.Struct("<Q32s")
_REQUEST = struct.Struct("<iiq")
_MOST_BYTES = 65_536
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class _Taking:
    """A window that libkineto was told to take. Times are unix ns."""

    trigger: str
    start_ns: int
    end_ns: int
    file: Path


@dataclass(frozen=True)
class _Step:
    step: int
    start_ns: int
    end_ns: int


class OnDemand:
    """The daemon of one training process. `order` asks for a window, `poll` looks whether it has come."""

    def __init__(self, folder: Path, events: Path, pid: int, *, memory: bool = False) -> None:
        """Listen in the folder. OSError if that is not possible, as when the training process has gone."""
        self._folder = folder
        self._events = events
        self._pid = pid
        self._memory = memory
        self._heard_at = -_SILENT_S
        self._count = 0
        self._wanted: tuple[str, int] | None = None
        self._taking: _Taking | None = None
        self._steps: list[_Step] = []
        self._size = -1
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(str(folder / SOCKET))
        except OSError:
            self._socket.close()
            raise
        self._socket.settimeout(0.5)
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="stepscope-on-demand", daemon=True)
        self._thread.start()

    def order(self, trigger: str, count: int, usual_ns: float) -> bool:
        """Ask for a window of so many steps of that length; False if libkineto is not there or has one to take."""
        with self._lock:
            is_there = time.monotonic() - self._heard_at < _SILENT_S
            if not is_there or self._wanted is not None or self._taking is not None:
                return False
            milliseconds = int((count + 1) * usual_ns * SLOWDOWN / 1e6)
            self._wanted = trigger, min(max(milliseconds, SHORTEST_MS), LONGEST_MS)
            return True

    def see(self, step: int, start_ns: int, end_ns: int) -> None:
        """Take in a train step, in unix ns, while a window is being taken."""
        taking = self._taking
        if taking is not None and start_ns < taking.end_ns and end_ns > taking.start_ns:
            self._steps.append(_Step(step, start_ns, end_ns))

    def poll(self, usual_ns: float) -> str:
        """Hand a trace that is whole over to the windows of the run; return what went wrong, or ""."""
        taking = self._taking
        if taking is None or time.time_ns() < taking.end_ns:
            return ""
        if (path := self._find_whole(taking)) is not None:
            return self._finish(taking, path, usual_ns)
        if time.time_ns() > taking.end_ns + _GIVE_UP_S * 1e9:
            self._forget()
            return "A detailed window was asked for and never came."
        return ""

    def close(self) -> None:
        """Answer no more; nothing is left behind."""
        self._is_open = False
        self._thread.join(2.0)
        self._socket.close()
        remove_folder(self._folder)

    def _serve(self) -> None:
        while self._is_open:
            try:
                data, sender = self._socket.recvfrom(_MOST_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return
            # A process that has ended cannot be answered; what is damaged is not.
            with contextlib.suppress(OSError, struct.error):
                self._answer(data, sender)

    def _answer(self, data: bytes, sender: str) -> None:
        _, kind = _HEADER.unpack_from(data)
        if kind.rstrip(b"\0") == b"ctxt":
            self._send(b"ctxt", struct.pack("<i", 1), sender)
            return
        _, count, _ = _REQUEST.unpack_from(data, _HEADER.size)
        pids = struct.unpack_from(f"<{max(count, 0)}i", data, _HEADER.size + _REQUEST.size)
        # The first is the process that asks, the others are those that started it: a child of the training asks too.
        is_trainer = bool(pids) and pids[0] == self._pid
        self._send(b"req", self._begin() if is_trainer else b"", sender)

    def _begin(self) -> bytes:
        with self._lock:
            self._heard_at = time.monotonic()
            wanted, self._wanted = self._wanted, None
            if wanted is None:
                return b""
            self._count += 1
            trigger, milliseconds = wanted
            start_ms = time.time_ns() // 1_000_000 + int(LEAD_S * 1000)
            start_ns, length_ns = start_ms * 1_000_000, milliseconds * 1_000_000
            file = self._folder / f"window{self._count}.json"
            announce_window(self._events, start_ns, start_ns + length_ns)
            self._steps, self._size = [], -1
            self._taking = _Taking(trigger, start_ns, start_ns + length_ns, file)
        lines = (
            f"PROFILE_START_TIME={start_ms}",
            "ACTIVITIES_WARMUP_PERIOD_SECS=1",
            f"ACTIVITIES_DURATION_MSECS={milliseconds}",
            f"ACTIVITIES_LOG_FILE={file}",
            "PROFILE_REPORT_INPUT_SHAPES=true",
            f"PROFILE_PROFILE_MEMORY={'true' if self._memory else 'false'}",
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def _send(self, kind: bytes, payload: bytes, receiver: str) -> None:
        self._socket.sendto(_HEADER.pack(len(payload), kind) + payload, receiver)

    def _find_whole(self, taking: _Taking) -> Path | None:
        """Return the trace once it has stopped growing and ends as a trace does. libkineto adds the pid to its name."""
        path = next(iter(taking.file.parent.glob(f"{taking.file.stem}*.json")), None)
        if path is None:
            return None
        size = path.stat().st_size
        has_grown, self._size = size != self._size, size
        if has_grown or not size:
            return None
        with path.open("rb") as file:
            file.seek(max(size - 16, 0))
            return path if file.read().rstrip().endswith(b"}") else None

    def _finish(self, taking: _Taking, path: Path, usual_ns: float) -> str:
        inside = [step for step in self._steps if step.start_ns >= taking.start_ns and step.end_ns <= taking.end_ns]
        known = inside or self._steps[:1]
        self._forget()
        if not known:
            path.unlink(missing_ok=True)
            return "A detailed window was taken while no step ran."
        start, end = (known[0].start_ns, known[-1].end_ns) if inside else (taking.start_ns, taking.end_ns)
        spent = sum(step.end_ns - step.start_ns for step in known)
        cost = max(spent - len(known) * usual_ns, 0.0) if usual_ns else 0.0
        try:
            shutil.move(path, trace_file(self._events, known[0].step))
            ends = tuple(step.end_ns for step in inside)
            write_window(self._events, WindowNote(known[0].step, start, end, ends, int(cost), taking.trigger))
        except OSError as error:
            return f"A detailed window could not be kept: {error}."
        return ""

    def _forget(self) -> None:
        with self._lock:
            self._taking = None
