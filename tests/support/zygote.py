"""A process that has imported what trainings need: each fork of it is a Python that has just been started, without the cost.

PyTorch and what belongs to it is imported here, then taken out of `sys.modules` again: a fork has it as soon as its script
imports it, and not before. A fork starts processes of Python by forks, too. What differs from a real start: flags that the
interpreter reads from its environment, such as PYTHONWARNINGS; `/proc/<pid>/environ` and `cmdline`; a session of its own; a
child beside those of the script; at the end no module is cleared.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from tests.support import forking

_PLAIN = (
    *("numpy", "psutil", "msgspec", "pyarrow.compute", "pyarrow.parquet"),
    *(
        "collector.launch.command",
        "collector.launch.profiler",
        "collector.session.bucket",
        "collector.sidecar.recorder",
    ),
)
_PARKED = (
    "torch",
    "torch._dynamo",
    "torch.nn.parallel.distributed",
    "torch.distributed.device_mesh",
    "torch.distributed.run",
)
_SERVER = (
    *("duckdb", "profiler_server.cli", "profiler_server.report.text", "profiler_server.report.brief"),
    *("profiler_server.report.gate", "profiler_server.web.serving", "profiler_server.web.report_file"),
    *("profiler_server.analysis.compare.comparison", "profiler_server.store.sql", "profiler_server.timeline.export"),
    *("collector.traces.importing", "collector.storage.uploading"),
)
"""What the commands of the server need; imported when the first of them is asked for."""
PARKED: Parked
_OUT_OF_THE_WAY = 200
"""Descriptors of our own have numbers from here on."""


class _Loader:
    """Gives back modules of one group, which were imported together."""

    def __init__(self, group: dict[str, ModuleType]) -> None:
        self._group = group

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._spec = self._group[spec.name].__spec__
        return self._group[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        for name, other in self._group.items():
            sys.modules.setdefault(name, other)


class Parked:
    """A finder of modules that were imported before: each comes back with those that it imported."""

    def __init__(self, names: Sequence[str]) -> None:
        self._groups: dict[str, dict[str, ModuleType]] = {}
        for name in names:
            before = set(sys.modules)
            importlib.import_module(name)
            group = {other: sys.modules[other] for other in list(sys.modules) if other not in before}
            self._groups |= dict.fromkeys(group, group)
        self.park()

    def park(self) -> None:
        for name in self._groups:
            sys.modules.pop(name, None)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        loader: Any = _Loader(self._groups[name]) if name in self._groups else None
        return spec_from_loader(name, loader) if loader else None


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, and return it in the fork, whose parent is who asked; None when nobody asks any more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, forking.MOST_BYTES, forking.MOST_DESCRIPTORS)
        if not message:
            return None
        request = json.loads(message)
        if any("profiler_server" in word for word in request["words"][:2]):
            _import_server()
        read, write = os.pipe()
        between = os.fork()
        if not between:
            forked = os.fork()
            if forked:
                os.write(write, str(forked).encode())
                os._exit(0)
            for used in (read, write, channel.detach()):
                os.close(used)
            return {**request, "descriptors": descriptors}
        os.waitpid(between, 0)  # from here on its fork has the next parent above that takes orphans
        channel.send(os.read(read, 16))
        for used in (read, write, *descriptors):
            os.close(used)


def _import_server() -> None:
    if "profiler_server.cli" not in sys.modules:
        for name in _SERVER:
            importlib.import_module(name)
        PARKED.park()  # a library has looked for PyTorch
        gc.collect()
        gc.freeze()


def serve_with_forks(channel: socket.socket) -> tuple[dict[str, Any], socket.socket] | None:
    """Do the same; each fork gets a server like this one, as a child, and returns how to ask it, too."""
    request = serve(channel)
    while request is not None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            theirs.close()
            moved = socket.socket(fileno=fcntl.fcntl(ours.detach(), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY))
            return request, moved
        ours.close()
        os.setsid()
        for descriptor in request["descriptors"]:
            os.close(descriptor)
        request = serve(theirs)
    return None


def become(request: dict[str, Any], base_path: Sequence[str]) -> ModuleType:
    """Make this process what was asked for; return its main module, which is still empty."""
    os.setsid()
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    moved = [fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for given in request["descriptors"]]
    for given in request["descriptors"]:
        os.close(given)
    for given, wanted in zip(moved, request["numbers"], strict=True):
        os.dup2(given, wanted)
        os.close(given)
    os.environ.clear()
    os.environ.update(request["environment"])
    entries = [entry for entry in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = ["", *entries, *base_path]
    sys.modules["__main__"] = main = ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    return main


def run_words(words: Sequence[str], main: ModuleType) -> None:
    """Do what `python words…` does."""
    if words[0] == "-u":
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        words = words[1:]
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), vars(main))
    elif words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path[0] = os.getcwd()
        sys.modules.pop(words[1], None)
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
    else:
        sys.argv[:] = words
        sys.path[0] = os.path.dirname(os.path.realpath(words[0]))
        main.__file__ = os.path.abspath(words[0])
        with open(words[0], "rb") as file:
            code = compile(file.read(), main.__file__, "exec")
        exec(code, vars(main))


def run_to_end(words: Sequence[str], main: ModuleType) -> None:
    """Do what `python words…` does, and end this process as that would end, but for the clearing of all modules."""
    code: Any = 0
    try:
        run_words(words, main)
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:  # noqa: BLE001  as the interpreter does
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        _tell(error)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if code < 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _tell(error: BaseException) -> None:
    """Print what nobody has caught, without the frames that a real start has not."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        inner = inner.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, inner
    sys.excepthook(type(error), error.with_traceback(inner), inner)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup it is ignored, and would be in each fork
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [entry for entry in sys.path[1:] if entry not in own]
    for plain in _PLAIN:
        importlib.import_module(plain)
    PARKED = Parked(_PARKED)
    sys.meta_path.insert(0, PARKED)
    gc.collect()
    gc.freeze()
    asked = serve_with_forks(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        forking.fork_from(asked[1])
        run_to_end(asked[0]["words"], become(asked[0], rest))
    os._exit(0)
