"""A real server on a free loopback port, in a thread of this process: what it imports is imported once for all tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from profiler_server.derive.store import Store
from profiler_server.settings import Settings
from profiler_server.web.app import create_app
from profiler_server.web.patience import PatientProtocol

START_LIMIT_S = 120.0


@contextmanager
def serve(base_dir: Path) -> Iterator[str]:
    """Serve base_dir and yield the address, without a slash at the end."""
    with Store().held():
        app = create_app(Settings(base_dir))
    with serve_app(app) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serve_app(app: ASGIApp) -> Iterator[int]:
    """Serve an app as the command does, and yield the port."""
    config = uvicorn.Config(app, port=0, log_level="error", http=PatientProtocol, timeout_graceful_shutdown=3)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_LIMIT_S
    while not server.started:
        assert thread.is_alive(), "the server ended"
        assert time.monotonic() < deadline, f"the server did not start in {START_LIMIT_S} s"
        time.sleep(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join(60)
