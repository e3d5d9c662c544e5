"""The start of a server: it binds the port, prints the URL, then loads the app. An early browser waits in the queue
of the socket."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from collector.format.schema.errors import UsageError
from profiler_server.derive.background import is_working
from profiler_server.fleet import telemetry
from profiler_server.settings import TOKEN_FORM, WILDCARD_HOSTS, Settings
from profiler_server.store.mirror import find_mirror
from profiler_server.web.guard import Hosts

BACKLOG = 128
PORTS_TRIED = 50
MOST_DESCRIPTORS = 1 << 16
SHUTDOWN_LIMIT_S = 3
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until interrupted. Raises UsageError, before anything else, if the server cannot start."""
    settings = ensure_token(settings)
    check_base_dir(settings)
    check_telemetry(settings)
    listener = open_socket(settings)
    return_large_blocks()
    for line in describe_start(settings, listener.getsockname()[1]):
        say(line)
    _run(settings, listener)
    leave_background()


def leave_background() -> None:
    """End the process at once if background work is running. Its results would only have been cached.

    The threads of this work may be in Arrow's code. Python aborts if such a thread returns during shutdown.
    """
    if is_working():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def ensure_token(settings: Settings) -> Settings:
    """Return the settings, with a new random token if the server is on a network and has no token.

    Raises UsageError for a token of the wrong form.
    """
    if settings.token and not TOKEN_FORM.fullmatch(settings.token):
        raise UsageError("--token takes 16 to 256 letters, digits and . _ ~ -; leave it out and one is made at start")
    if settings.token or not settings.asks_for_token:
        return settings
    return replace(settings, token=secrets.token_urlsafe(24))


def describe_start(settings: Settings, port: int) -> list[str]:
    """Return the lines to print at start: the link to open; on a network, also who can read the runs and the
    server's names."""
    link = f"?token={settings.token}" if settings.token else ""
    mirror = find_mirror(settings.base_dir)
    place = mirror.url if mirror is not None else settings.base_dir.resolve()
    lines = [f"Stepscope shows the runs below {place} at {describe_address(settings, port)}{link}"]
    if settings.token:
        lines.append(
            "Whoever has this link can read these runs; programs send its token as `Authorization: Bearer TOKEN`."
        )
    if not settings.is_loopback:
        names = ", ".join(Hosts(settings).names)
        lines.append(f"It listens on {settings.host} and answers to {names}; --allowed-host adds a name.")
    return lines


def raise_descriptor_limit() -> int:
    """Raise the limit of open files to at most MOST_DESCRIPTORS. Return the limit that is then in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft >= most:
        return soft
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft


def return_large_blocks() -> None:
    """Make glibc return blocks of a megabyte or more to the system when they are freed.

    By default, glibc keeps freed blocks of up to 32 MiB for their thread. So the arrays of one request would stay in
    memory for weeks.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _run(settings: Settings, listener: socket.socket) -> None:
    import uvicorn  # imported after the socket is bound, so that a wrong port is reported at once

    from profiler_server.derive.many import choose_processes
    from profiler_server.derive.store import find_store
    from profiler_server.web.app import create_app
    from profiler_server.web.patience import HEAD_LIMIT_BYTES, MOST_CONNECTIONS, PatientProtocol

    find_store().choose_workers = choose_processes
    # The other half of the descriptors is for files: a page must be made even if many clients keep connections open.
    PatientProtocol.most_connections = min(MOST_CONNECTIONS, raise_descriptor_limit() // 2)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        http=PatientProtocol,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=HEAD_LIMIT_BYTES,
        proxy_headers=False,  # anyone can send them
        timeout_graceful_shutdown=SHUTDOWN_LIMIT_S,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        return  # Ctrl-C is the usual way to stop the server


def check_base_dir(settings: Settings) -> None:
    base = settings.base_dir
    try:
        next(base.iterdir(), None)
    except FileNotFoundError:
        raise UsageError(f"{base} does not exist; give the folder that holds your runs, or make it") from None
    except NotADirectoryError:
        how = f"`stepscope import {base.name} --summary-base-dir DIR` makes a run of it, then serve DIR"
        raise UsageError(f"{base} is a file and no folder of runs; {how}") from None
    except OSError as error:
        raise UsageError(f"--summary-base-dir {base} cannot be listed: {error.strerror or error}") from None


def check_telemetry(settings: Settings) -> None:
    if settings.otlp_endpoint:
        telemetry.find_address(settings.otlp_endpoint)
        telemetry.check_installed()


def open_socket(settings: Settings) -> socket.socket:
    """Return a listening socket. Raises UsageError if that fails; if the wanted port is in use, the message has a free
    port.
    """
    try:
        return _listen(settings.host, settings.port)
    except (OSError, OverflowError) as error:
        code = error.errno if isinstance(error, OSError) else None
        if code == errno.EADDRINUSE:
            free = find_free_port(settings)
            raise UsageError(f"port {settings.port} on {settings.host} is in use; try --port {free}") from None
        if code == errno.EACCES:
            raise UsageError(f"port {settings.port} needs more rights; try --port 8080") from None
        raise UsageError(f"cannot listen on {settings.host}:{settings.port}: {error}") from None


def find_free_port(settings: Settings) -> int:
    wanted = (*range(settings.port + 1, min(settings.port + PORTS_TRIED, 65536)), 0)
    return next((found for port in wanted if (found := _probe(settings.host, port))), 0)


def _probe(host: str, port: int) -> int | None:
    try:
        with _listen(host, port) as listener:
            return int(listener.getsockname()[1])
    except OSError:
        return None


def with_free_port(settings: Settings) -> Settings:
    try:
        _listen(settings.host, settings.port).close()
    except OSError:
        return replace(settings, port=find_free_port(settings))
    return settings


def describe_address(settings: Settings, port: int) -> str:
    host = "127.0.0.1" if settings.host in WILDCARD_HOSTS else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
