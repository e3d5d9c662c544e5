"""Requests with an upload as no browser would send them: bodies, names, lengths and pieces that lie."""

from __future__ import annotations

import json
import logging
import random
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from profiler_server.settings import Settings
from profiler_server.web import patience
from profiler_server.web.app import create_app
from profiler_server.web.uploads.imports import UPLOAD_FOLDER, Import
from tests.fuzz.asking import Faults
from tests.fuzz.files import take_stock
from tests.fuzz.frame import Case, HarmError
from tests.fuzz.mutations import BYTES, spoil_bytes
from tests.support.runs import RunPlan, build_run

_LIMIT_BYTES = 64 << 10
_PATIENCE_S = 10.0
_QUIET_S = 0.05
"""How long a request that lacks its end is left open."""
_NAMES = (
    "t.json", "t.json.gz", "../../../evil.json", "..\\..\\evil.json", "/etc/passwd", "C:\\x.json", ".json", "..json", "a/b/.json",
    "\x00.json", "a\x00.json", "n" * 5000 + ".json", "é.json", "\udcff.json", "rank0.json", 'q".json', "%2e%2e%2f.json", "profiler.json",
    "con.json", " .json", "a.json;filename=b.json", "\r\nX: y.json", "t.txt", "", "t.JSON", "\u202enosj.json", "accepted.json",
)  # fmt: skip
_TYPES = (
    "multipart/form-data; boundary={0}", "multipart/form-data; boundary=\"{0}\"", "multipart/form-data", "multipart/form-data; boundary=",
    "multipart/form-data; boundary=" + "b" * 5000, "Multipart/Form-Data;boundary={0};boundary=x", "application/json", "",
    "multipart/form-data; boundary=\xff\xfe", "multipart/form-data; boundary*=utf-8''{0}", "multipart/mixed; boundary={0}", "a/b; c" * 900,
)  # fmt: skip
_LENGTHS = ("-1", "0", "1", "18446744073709551616", "9" * 5000, "1e3", "0x10", " 5", "5, 5", "²", "65537", "")
_SIZES = ("0", "1", "FFFFFFFF", "ffffffffffffffffff", "-1", "", "x", "5;ext=1", "0" * 300 + "5", " 4")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


class Uploads:
    """Sends bytes to a real server."""

    name = "uploads"

    def __init__(self, folder: Path) -> None:
        self.base = folder / "runs"
        build_run(self.base / "other", RunPlan(steps=4))
        app = create_app(Settings(self.base, upload_limit_bytes=_LIMIT_BYTES))
        app.state.services.imports.start = self._take  # what is read of a trace is another kind's
        config = uvicorn.Config(app, port=0, log_level="error", http=patience.PatientProtocol, log_config=None)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        _wait(lambda: self._server.started, "the server does not start")
        self._port = self._server.servers[0].sockets[0].getsockname()[1]
        self._faults = Faults()
        logging.getLogger().addHandler(self._faults)
        self._harm = ""
        self._stock = take_stock(self.base)

    def _take(self, folder: Path, files: Sequence[Path]) -> Import:
        room = self.base / UPLOAD_FOLDER
        for path in files:
            if (
                path.resolve() != path
                or path.parent.parent != folder
                or folder.parent != room
                or path.name.startswith(".")
            ):
                self._harm = f"a file is written to {path}"
        shutil.rmtree(folder)
        return Import(secrets.token_hex(8), "waiting", tuple(path.name for path in files))

    def make(self, chance: random.Random) -> Case:
        boundary = chance.choice(("b-o-u-n-d", "b", "-" * 60, "x" * 200))
        body = self._make_body(chance, boundary)
        kind = chance.choice(_TYPES).format(boundary) if chance.random() < 0.3 else _TYPES[0].format(boundary)
        lines = [
            f"POST /api/v1/imports HTTP/1.{chance.choice('01') if chance.random() < 0.05 else 1}",
            "Host: 127.0.0.1:{port}",
        ]
        lines += [f"Content-Type: {kind}", "Connection: close"]
        how = chance.random()
        if how < 0.55:
            lines.append(f"Content-Length: {len(body)}")
        elif how < 0.75:
            lines.append(
                f"Content-Length: {chance.choice((*_LENGTHS, str(len(body) + 9), str(max(len(body) - 9, 0))))}"
            )
        else:
            lines.append("Transfer-Encoding: chunked")
            lines += ["Content-Length: 5"] if chance.random() < 0.1 else []
            body = _cut_into_chunks(chance, body)
        if chance.random() < 0.05:
            lines.append(
                chance.choice(
                    ("Expect: 100-continue", "Content-Encoding: gzip", "X: " + "y" * 70_000, "Transfer-Encoding: gzip")
                )
            )
        head = "\r\n".join(lines).encode("latin-1", "replace")
        raw = head + b"\r\n\r\n" + body
        return Case(
            json.dumps([chance.choice((1 << 20, 1 << 20, 700, 33))]),
            spoil_bytes(chance, raw, 1) if chance.random() < 0.1 else raw,
        )

    def _make_body(self, chance: random.Random, boundary: str) -> bytes:
        parts = []
        for _ in range(chance.choice((1, 1, 1, 2, 30))):
            name = chance.choice(_NAMES) if chance.random() < 0.6 else "t.json"
            head = chance.choice(
                (
                    f'Content-Disposition: form-data; name="file"; filename="{name}"',
                    f"Content-Disposition: form-data; filename={name}; name=file",
                    f"Content-Disposition: form-data; name=x; filename*=utf-8''{name}",
                    'Content-Disposition: form-data; name="file"',
                    "Content-Disposition: " + "form-data; " * 1000,
                    f'content-disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: a/b\r\nX: {"y" * 9000}',
                )
                if chance.random() < 0.4
                else (f'Content-Disposition: form-data; name="file"; filename="{name}"',)
            )
            data = chance.choice(
                (b"", b"{}", b'{"traceEvents": []}', b"x" * 70_000, chance.randbytes(300), f"--{boundary}".encode())
            )
            parts.append(f"--{boundary}\r\n".encode() + head.encode("utf-8", "replace") + b"\r\n\r\n" + data + b"\r\n")
        body = b"".join(parts) + f"--{boundary}--\r\n".encode()
        return chance.choice(BYTES)(chance, body) if chance.random() < 0.35 else body

    def check(self, case: Case) -> bool:
        (piece_bytes,) = json.loads(case.place)
        answer = self._send(case.content.replace(b"{port}", str(self._port).encode()), piece_bytes)
        if self._faults.found:
            raise self._faults.found.pop()
        if self._harm:
            harm, self._harm = self._harm, ""
            raise HarmError(harm)
        status = _STATUS.match(answer)
        if status and int(status[1]) >= 500 and int(status[1]) not in (501, 503, 507):
            raise HarmError(f"the answer is {status[1].decode()}: {answer[-300:]!r}")
        if b"Traceback" in answer:
            raise HarmError("the answer shows a traceback")
        return status is not None and int(status[1]) < 300

    def _send(self, raw: bytes, piece_bytes: int) -> bytes:
        """Send a request in pieces and return the answer, empty if the server waits for more or hangs up."""
        received = b""
        with socket.create_connection(("127.0.0.1", self._port), _PATIENCE_S) as connection:
            try:
                for at in range(0, len(raw), max(piece_bytes, len(raw) // 50)):
                    connection.sendall(raw[at : at + max(piece_bytes, len(raw) // 50)])
                connection.settimeout(_QUIET_S)
                while piece := connection.recv(65_536):
                    received += piece
            except (TimeoutError, ConnectionError):
                return received
        return received

    def verify(self) -> None:
        room = self.base / UPLOAD_FOLDER
        _wait(lambda: not room.exists() or not any(room.iterdir()), "what was sent is left behind")
        if (
            _STATUS.match(
                self._send(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 999)
            )
            is None
        ):
            time.sleep(1)
            answer = self._send(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 999)
            if _STATUS.match(answer) is None:
                raise HarmError("the server does not answer any more")
        now = {path: at for path, at in take_stock(self.base).items() if "/.stepscope-summaries" not in path}
        if now != self._stock:
            raise HarmError(f"files have changed: {sorted(set(now) ^ set(self._stock))[:5]}")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(_PATIENCE_S)
        logging.getLogger().removeHandler(self._faults)


def _cut_into_chunks(chance: random.Random, body: bytes) -> bytes:
    """Write a body in chunks; now and then one says another size than it has, or the last is missing."""
    pieces: list[bytes] = []
    at = 0
    while at < len(body) and len(pieces) < 40:
        size = chance.choice((1, 10, 500, 70_000))
        piece = body[at : at + size]
        told = chance.choice(_SIZES) if chance.random() < 0.05 else f"{len(piece):x}"
        pieces.append(told.encode() + b"\r\n" + piece + b"\r\n")
        at += size
    return b"".join(pieces) + (b"0\r\n\r\n" if chance.random() < 0.9 else b"")


def _wait(condition: Callable[[], bool], problem: str) -> None:
    """Wait until a condition holds. Raises HarmError."""
    deadline = time.monotonic() + 3 * _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise HarmError(problem)
        time.sleep(0.01)


KIND = Uploads
