"""The attempts: each is a piece of the user's script, run before torch is imported, before the recording, in the middle of
the loop, or after it; or a way to start the interpreter."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Attempt:
    """`is_quick` marks those that the gate makes, `is_watched` those below the library of `tests.disk`."""

    name: str
    before_torch: str = ""
    before: str = ""
    during: str = ""
    after: str = ""
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    is_quick: bool = False
    is_watched: bool = False


_FILES = (
    "run.json",
    "rank_0/rank.json",
    "rank_0/events/words.ring",
    "rank_0/events/notes.json",
    "rank_0/events/checkpoint.json",
    "rank_0/events/recorder.lock",
    "rank_0/events/sidecar.log",
    "rank_0/steps/000000.parquet",
    "rank_0/phases/000000.parquet",
)
_DAMAGES = {
    "truncate": "os.truncate(path, 0)",
    "remove": "os.unlink(path)",
    "scribble over": "open(path, 'r+b').write(os.urandom(20000))",
    "forbid": "os.chmod(path, 0)",
    "replace by a folder": "os.unlink(path); os.mkdir(path)",
    "replace by a pipe": "os.unlink(path); os.mkfifo(path)",
    "replace by a link to /dev/full": "os.unlink(path); os.symlink('/dev/full', path)",
}
_QUICK_DAMAGES = {("replace by a pipe", "rank_0/events/notes.json")}


def _damage_files() -> list[Attempt]:
    return [
        Attempt(
            f"{damage} {file}",
            during=f"for path in files({file!r}): {code}",
            is_quick=(damage, file) in _QUICK_DAMAGES,
        )
        for damage, code in _DAMAGES.items()
        for file in _FILES
    ]


_NUMBERS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENOMEM)
_CALLS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 40)
_FOR_EVER = 1 << 40
_WATCH = "import ctypes; disk = ctypes.CDLL(None); disk.disk_watch(os.fsencode(OUT), -1);"


def _fail_calls() -> list[Attempt]:
    """Let a call to the disk fail, once or for good, in the training or in the sidecar."""
    attempts = []
    for place, call in enumerate(_CALLS):
        for last in (call, _FOR_EVER):
            number = _NUMBERS[(place + (last > call)) % len(_NUMBERS)]
            name = f"{os.strerror(number)} at call {call}{' and after' if last > call else ''}"
            here = f"{_WATCH} disk.disk_fail(ctypes.c_long({call}), ctypes.c_long({last}), {number})"
            there = (
                f"os.environ.update(DISK_ROOT=OUT, DISK_FAIL_AT='{call}', DISK_FAIL_UNTIL='{last}', "
                f"DISK_FAIL_WITH='{number}')"
            )
            attempts.append(Attempt(f"{name} of the training", before=here, is_watched=True))
            attempts.append(Attempt(f"{name} of the sidecar", before=there, is_watched=True))
    return attempts


_DURING = {
    "stop the sidecar": "signal_ours(signal.SIGSTOP)",
    "kill the sidecar": "signal_ours(signal.SIGKILL)",
    "kill every sidecar as it comes": (
        "def hunt():\n"
        "    while True:\n"
        "        signal_ours(signal.SIGKILL); time.sleep(0.02)\n"
        "threading.Thread(target=hunt, daemon=True).start(); PAUSE_S = 0.2"
    ),
    "terminate the sidecar": "signal_ours(signal.SIGTERM)",
    "abort the sidecar": "signal_ours(signal.SIGSEGV)",
    "trace the sidecar": "trace_ours()",
    "give the sidecar no memory": "limit_ours(resource.RLIMIT_AS, 1 << 20)",
    "give the sidecar no files": "limit_ours(resource.RLIMIT_NOFILE, 0)",
    "give the sidecar no file size": "limit_ours(resource.RLIMIT_FSIZE, 0)",
    "squeeze the sidecar in a memory cgroup": "squeeze(ours(), 8 << 20)",
    "squeeze every sidecar as it comes": (
        "def hunt():\n"
        "    while True:\n"
        "        squeeze(ours(), 8 << 20); time.sleep(0.02)\n"
        "threading.Thread(target=hunt, daemon=True).start(); PAUSE_S = 0.2"
    ),
    "fill /dev/shm": "own_shm(1 << 20)",
    "give the sidecar no processor time": "limit_ours(resource.RLIMIT_CPU, 0)",
    "remove the output": "shutil.rmtree('out', ignore_errors=True)",
    "remove the rank": "shutil.rmtree('out/profiler/rank_0', ignore_errors=True)",
    "remove the events": "shutil.rmtree('out/profiler/rank_0/events', ignore_errors=True)",
    "move the output away": "os.path.isdir('out') and os.rename('out', 'elsewhere')",
    "replace the output by a file": "shutil.rmtree('out', ignore_errors=True); open('out', 'w').close()",
    "forbid the rank": "for path in files('rank_0'): os.chmod(path, 0)",
    "forbid the events": "for path in files('rank_0/events'): os.chmod(path, 0)",
    "remove the current folder": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "no home": "os.environ.pop('HOME', None)",
    "an empty environment": "os.environ.clear()",
    "close every descriptor": "os.closerange(3, 4096)",
    "close every descriptor and open as many files": (
        "os.closerange(3, 4096); MINE = [open(f'mine{n}', 'w+b') for n in range(30)]"
    ),
    "close stdin, stdout's copy and stderr": "os.close(0); os.close(2)",
    "close stderr of Python": "sys.stderr.close()",
    "no stderr of Python": "sys.stderr = None",
    "no more files": "resource.setrlimit(resource.RLIMIT_NOFILE, (0, HARD))",
    "no more processes": "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))",
    "no file size": "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))",
    "no more memory": "resource.setrlimit(resource.RLIMIT_AS, (size_now() + (8 << 20), resource.RLIM_INFINITY))",
    "umask 777": "os.umask(0o777)",
    "handlers of every signal replaced": (
        "for n in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(n, lambda *_: None)"
    ),
    "children ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "children reaped by the script": "signal.signal(signal.SIGCHLD, lambda *_: reap())",
    "a timer that interrupts": (
        "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)"
    ),
    "a trace function": "sys.settrace(lambda *_: None); threading.settrace(lambda *_: None)",
    "a profile function": "sys.setprofile(lambda *_: None)",
    "garbage frozen": "import gc; gc.freeze(); gc.disable()",
    "garbage always collected": "import gc; gc.set_threshold(1, 1, 1)",
    "switching all the time": "sys.setswitchinterval(1e-6)",
    "a fork that leaves": "children = [fork_and_leave() for _ in range(30)]; [os.waitpid(c, 0) for c in children]",
    "a fork that goes on": "fork_and_train()",
    "processes that end as they come": "[subprocess.run(['true']) for _ in range(30)]",
    "many threads": "ts = [threading.Thread(target=time.sleep, args=(0.3,)) for _ in range(64)]; [t.start() for t in ts]",
    "clock functions replaced": "time.perf_counter_ns = lambda: 0; time.time = lambda: 0.0; time.monotonic = lambda: 0.0",
    "time.sleep replaced": "time.sleep = lambda *_: None",
    "open replaced": "import builtins; builtins.open = None",
    "os.replace and os.fsync fail": "os.replace = os.fsync = refuse",
    "os functions gone": "del os.pwrite, os.link, os.replace",
    "json, psutil and subprocess gone": "[sys.modules.pop(m, None) for m in ('json', 'psutil', 'subprocess', 'pyarrow')]",
    "no import works": "sys.meta_path.clear(); sys.path.clear()",
    "logging raises": "import logging; logging.raiseExceptions = True; logging.Logger.handle = refuse",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "print is gone": "import builtins; builtins.print = (lambda real: lambda *a, **k: real(*a, **k) if not k else refuse())(print)",
    "no atexit": "atexit._clear()",
    "our modules removed": "[sys.modules.pop(m) for m in list(sys.modules) if m.startswith('collector')]",
    "the hooks removed": "torch.nn.modules.module._global_forward_hooks.clear(); torch.nn.modules.module._global_forward_pre_hooks.clear()",
    "the optimizer's step restored": "type(optimizer).step = torch.optim.SGD.step",
    "hard links to our files": "[os.link(p, f'link{n}') for n, p in enumerate(files('rank_0/events/words.ring'))]",
    "a thousand foreign files": "[open(f'{d}/x{n}.ring', 'wb').close() for d in files('rank_0/events') for n in range(1000)]",
    "foreign rings": "[open(f'{d}/stages-0-0-0-1-{n}.ring', 'wb').write(os.urandom(9000)) for d in files('rank_0/events') for n in range(20)]",
    "orders that are none": "[open(f'{d}/control.json', 'w').write('[' * 5000) for d in files('')]",
    "an exception in a thread": "threading.excepthook = refuse; threading.Thread(target=refuse).start()",
}
_QUICK_DURING = {"close every descriptor and open as many files", "an empty environment", "give the sidecar no memory"}
_BEFORE = {
    "few descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (16, HARD))",
    "no descriptor": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, HARD))",
    "no process": "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))",
    "no file size": "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))",
    "4 KiB of file size": "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))",
    "12 MiB of file size": "resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 20, resource.RLIM_INFINITY))",
    "a full /dev/shm": "own_shm(1 << 20)",
    "a full /dev/shm and workers": (
        "own_shm(1 << 20); data = torch.utils.data.DataLoader(data.dataset, batch_size=8, num_workers=2)"
    ),
    "64 MiB more memory": "resource.setrlimit(resource.RLIMIT_AS, (size_now() + (64 << 20), resource.RLIM_INFINITY))",
    "300 MiB more memory": "resource.setrlimit(resource.RLIMIT_AS, (size_now() + (300 << 20), resource.RLIM_INFINITY))",
    "umask 777": "os.umask(0o777)",
    "no home": "os.environ.pop('HOME', None)",
    "a home that is none": "os.environ['HOME'] = '/dev/null'",
    "a current folder that is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "little recursion": "sys.setrecursionlimit(60)",
    "stdin, stdout's copy and stderr closed": "os.close(0); os.close(2)",
    "children ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a folder where the run goes": "os.makedirs('out/profiler/rank_0/events')",
    "a file where the run goes": "open('out', 'w').close()",
    "a link to itself where the run goes": "os.symlink('out', 'out')",
    "a pipe where run.json goes": "os.makedirs('out/profiler'); os.mkfifo('out/profiler/run.json')",
    "a folder that cannot be written": "os.mkdir('out'); os.chmod('out', 0o500)",
    "no memfd": "os.memfd_create = refuse",
    "no Python to start": "sys.executable = '/nowhere/python'",
    "an executable that is none": "sys.executable = None",
    "an executable that hangs": "open('hang', 'w').write('#!/bin/sh\\nsleep 60'); os.chmod('hang', 0o700); sys.executable = os.path.abspath('hang')",
    "an executable that fails": "sys.executable = '/bin/false'",
    "a host without a name": "import socket; socket.gethostname = refuse",
    "the arguments are gone": "del sys.argv",
    "garbage as rank": "os.environ.update(RANK='x', WORLD_SIZE='-3', LOCAL_RANK='1e9')",
    "a clock that jumps": "import time; time.time_ns = lambda: 1",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "a trace function": "sys.settrace(lambda *_: None); threading.settrace(lambda *_: None)",
}  # fmt: skip
_QUICK_BEFORE = {"few descriptors", "umask 777", "4 KiB of file size"}
_CONTAINERS = (270, 280, 300, 340)
_STARTS: dict[str, dict[str, object]] = {
    # The training alone takes some 240 MiB.
    **{f"a container of {room} MiB": {"before_torch": f"squeeze([TRAINER], {room} << 20)"} for room in _CONTAINERS},
    "PYTHONOPTIMIZE=2": {"flags": ("-OO",)},
    "isolated": {"flags": ("-I",)},
    "no bytecode, unbuffered": {"flags": ("-B", "-u")},
    "development mode": {"flags": ("-X", "dev")},
    "warnings are errors from the start": {"flags": ("-W", "error::ResourceWarning")},
    "no UTF-8": {"environment": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}},
    "memory in debug mode": {"environment": {"PYTHONMALLOC": "debug"}},
    "an odd library path": {"environment": {"LD_LIBRARY_PATH": "/nowhere:::/dev/null"}},
    "an odd path": {"environment": {"PATH": ""}},
    "a Python home for the sidecar": {"before": "os.environ['PYTHONHOME'] = '/nowhere'"},
    "a startup file for the sidecar": {
        "before": "os.environ['PYTHONSTARTUP'] = '/dev/full'; os.environ['PYTHONINSPECT'] = '1'"
    },
    "a preloaded library that is none": {"before": "os.environ['LD_PRELOAD'] = '/nowhere/x.so'"},
    "a broken module for the sidecar": {
        "before": "os.makedirs('bad'); open('bad/sitecustomize.py', 'w').write('import os; os._exit(3)');"
        "os.environ['PYTHONPATH'] = os.path.abspath('bad') + ':' + os.environ.get('PYTHONPATH', '')"
    },
    "a temporary folder that is none": {"environment": {"TMPDIR": "/nowhere"}},
    "hash seed and faulthandler": {"environment": {"PYTHONHASHSEED": "0", "PYTHONFAULTHANDLER": "1"}},
    "an exit by sys.exit in the loop's end": {"after": "sys.exit(7)"},
    "os._exit": {"after": "sys.stdout.flush(); os._exit(7)"},
    "an exit while a thread runs": {"after": "threading.Thread(target=time.sleep, args=(1,)).start()"},
    "daemon threads at the end": {"after": "[threading.Thread(target=spin, daemon=True).start() for _ in range(4)]"},
}
_QUICK_STARTS = {"os._exit"}


def list_attempts() -> tuple[Attempt, ...]:
    during = [Attempt(name, during=code, is_quick=name in _QUICK_DURING) for name, code in _DURING.items()]
    before = [Attempt(f"{name}, before", before=code, is_quick=name in _QUICK_BEFORE) for name, code in _BEFORE.items()]
    starts = [Attempt(name, is_quick=name in _QUICK_STARTS, **given) for name, given in _STARTS.items()]  # type: ignore[arg-type]
    return (*during, *before, *starts, *_damage_files(), *_fail_calls())
