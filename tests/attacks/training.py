"""The script that the attempts are made on: deterministic, with its own exit code, the same plain and recorded."""

from __future__ import annotations

from tests.attacks.attempts import Attempt

EXIT_CODE = 7
_HEAD = """
import atexit, glob, os, resource, shutil, signal, subprocess, sys, threading, time
sys.path.insert(0, {root!r})
IS_RECORDED = {is_recorded!r}
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
PAUSE_S = 0.0
TRAINER = os.getpid()
clock, pause, opened, write = time.monotonic, time.sleep, open, os.write
report = os.open('said.txt', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
REPORT = os.path.abspath('said.txt')
OUT = os.path.abspath('out')

def files(pattern):
    return glob.glob('out/profiler/' + pattern)

def ours():
    found = []
    for entry in os.listdir('/proc'):
        try:
            command = opened(f'/proc/{{entry}}/cmdline').read() if entry.isdigit() else ''
        except OSError:
            continue
        if 'collector.sidecar' in command and OUT in command:
            found.append(int(entry))
    return found

def signal_ours(number):
    for pid in ours():
        try:
            os.kill(pid, number)
        except OSError:
            pass

def limit_ours(kind, amount):
    for pid in ours():
        resource.prlimit(pid, kind, (amount, amount))

def trace_ours():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in ours():
        libc.ptrace(16, pid, None, None)

def own_shm(room):
    # a /dev/shm of this process and of those that it starts, with no room left
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    private = 0x44000
    if libc.unshare(0x20000) or libc.mount(b'none', b'/', None, private, None):
        return write(2, b'this system gives nobody a /dev/shm of its own\\n')
    libc.mount(b'tmpfs', b'/dev/shm', b'tmpfs', 0, b'size=%d' % room)
    with opened('/dev/shm/full', 'wb', buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass

def squeeze(pids, room):
    # a memory cgroup of some processes; what they hold already does not count on all systems
    root = '/sys/fs/cgroup/memory' if os.path.isdir('/sys/fs/cgroup/memory') else '/sys/fs/cgroup'
    limit = 'memory.limit_in_bytes' if root.endswith('memory') else 'memory.max'
    group = f'{{root}}/stepscope-attempt-{{TRAINER}}-{{room}}'
    try:
        os.makedirs(group, exist_ok=True)
        with opened(f'{{group}}/{{limit}}', 'w') as file:
            file.write(str(room))
    except OSError:
        return write(2, b'this system gives nobody a memory cgroup of its own\\n')
    for pid in pids:
        try:
            with opened(f'{{group}}/cgroup.procs', 'w') as file:
                file.write(str(pid))
        except OSError:
            pass

def refuse(*arguments, **named):
    raise OSError(5, 'refused')

def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass

def size_now():
    return int(opened('/proc/self/statm').read().split()[0]) * 4096

def spin():
    while True:
        pass

def fork_and_leave():
    child = os.fork()
    if not child:
        os._exit(0)
    return child

def fork_and_train():
    child = os.fork()
    if not child:
        train(3, quietly=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
_LOOP = """
import torch
from collector import Profiler
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=8)

def train(steps, quietly=False):
    left = steps
    while left:
        for (batch,) in data:
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if not quietly:
                write(1, (loss.item().hex() + '\\n').encode())
            if PAUSE_S:
                pause(PAUSE_S)
            left -= 1
            if not left:
                return
"""
_END = """
train(20)
begun = clock()
if IS_RECORDED:
    profiler.analyse()
seconds = clock() - begun
try:
    write(os.open(REPORT, os.O_WRONLY), str(seconds).encode())
except OSError:
    pass
"""


def build_script(attempt: Attempt, root: str, is_recorded: bool) -> str:
    """Return the script, recorded or plain, with the attempt made in it."""
    # A plain training makes a folder, too: Python looks anew into the folder of a script that has changed.
    begin = "profiler = Profiler('out', window=None) if IS_RECORDED else os.path.lexists('out') or os.mkdir('out')\n"
    wait = "if IS_RECORDED:\n    pause(4.5)\n" if "parquet" in attempt.name else "if IS_RECORDED:\n    pause(1.2)\n"
    parts = (
        _HEAD.format(root=root, is_recorded=is_recorded),
        attempt.before_torch,
        _LOOP,
        attempt.before,
        begin,
        "train(10)",
        wait,
        attempt.during,
        "train(30)",
        "if IS_RECORDED:\n    pause(0.3)\n",
        _END,
        attempt.after,
        f"sys.exit({EXIT_CODE})",
    )
    script = "\n".join(parts)
    compile(script, attempt.name, "exec")  # a script that does not start would end alike, plain and recorded
    return script
