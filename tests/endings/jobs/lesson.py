"""What all jobs share: the data, the model, the lines that a job prints, and how its end is provoked from inside.

ENDINGS_WAY says how the job ends once it has done ENDINGS_STEPS steps; without it, it returns. A job whose end comes from
outside goes on training after that. Steps behind ENDINGS_STEPS are nowhere compared.
"""

import hashlib
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

STEPS = int(os.environ.get("ENDINGS_STEPS", "12"))
WAY = os.environ.get("ENDINGS_WAY", "return")
VICTIM = int(os.environ.get("ENDINGS_VICTIM", "0"))
WAITS_FOR_SIGNAL = WAY == "outside"
PATIENCE_S = 15.0
"""How long a job waits for other ranks, or trains on if no signal ends it."""
_until = {}
COLLECTIVE_S = 5.0
"""A collective that a rank leaves out fails after so long."""
_door = importlib.import_module(os.environ["ENDINGS_DOOR"]) if "ENDINGS_DOOR" in os.environ else None


def rank():
    return int(os.environ.get("RANK", "0"))


def world():
    return int(os.environ.get("WORLD_SIZE", "1"))


def begin():
    """What stands before the loop of a script."""
    if _door is not None:
        _door.begin()


def finish():
    """What stands behind the loop of a script."""
    if _door is not None:
        _door.finish()


def make_samples(pause_s=0.002):
    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 1_000_000

        def __getitem__(self, index):
            time.sleep(pause_s / 4)
            made = torch.arange(16, dtype=torch.float32)
            return torch.sin(made * (index + 1 + 1000 * rank())), index % 4

    return Samples()


def make_model():
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def take_step(model, optimizer, batch):
    import torch

    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss


def is_over(step, model, loss=None, who=None):
    """Print the line of a step, and end the job after its last one as ENDINGS_WAY says; True where the loop is to end."""
    who = rank() if who is None else who
    if step <= STEPS:
        value = "" if loss is None else f", loss {loss.item().hex()}"
        say(f"step {step} of rank {who}{value}, weights {digest(model)}")
    if step < STEPS:
        return False
    if step == STEPS:
        save(model, who)
        say(f"last step of rank {who}")
        return end(model, who)
    time.sleep(0.02)
    return time.monotonic() > _until[who]


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def list_weights(model):
    for value in model.parameters():
        value = value.detach()
        yield (value.to_local() if hasattr(value, "to_local") else value).contiguous()


def digest(model):
    whole = hashlib.sha256()
    for value in list_weights(model):
        whole.update(value.numpy().tobytes())
    return "w" + whole.hexdigest()[:16]


def save(model, who):
    import torch

    torch.save(list(list_weights(model)), f"checkpoint.{who}.pt")


def wait_for_others(who):
    """Wait until the other ranks are at their last step, too: what ends one of them ends the same moment in each trial."""
    Path(f"reached.{who}").touch()
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and len(list(Path().glob("reached.*"))) < world():
        time.sleep(0.01)


def end(model, who):
    wait_for_others(who)
    if WAITS_FOR_SIGNAL:
        _until[who] = time.monotonic() + PATIENCE_S
        return False
    action = ENDS.get(WAY)
    if action is None:
        return True
    if WAY in TOGETHER:
        action(model, who == VICTIM)
    elif who == VICTIM:
        action(model)
    return True


def fail(model):
    raise ValueError("planted")


def run_out_of_memory(model):
    import torch

    held = [torch.zeros(1000) for _ in range(8)]
    return torch.empty(1 << 50) + len(held)


def fail_in_thread(model):
    thread = threading.Thread(target=fail, args=(model,), name="failing")
    thread.start()
    thread.join()


def leave(model):
    sys.exit(3)


def leave_at_once(model):
    os._exit(4)


def kill(model):
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(PATIENCE_S)


_kept = []


def evaluate(model):
    """Begin an evaluation with workers and leave in the middle of it: the iterator is alive when the job ends."""
    import torch

    model.eval()
    batches = iter(torch.utils.data.DataLoader(make_samples(), batch_size=8, num_workers=1))
    _kept.append(batches)
    with torch.no_grad():
        for _ in range(3):
            model(next(batches)[0])


def fail_in_evaluation(model):
    evaluate(model)
    fail(model)


def meet(model, is_victim):
    """All ranks but one enter a collective; that one fails meanwhile."""
    import torch
    import torch.distributed as dist

    if is_victim:
        time.sleep(0.5)
        fail(model)
    dist.all_reduce(torch.ones(4))


def abort(model, is_victim):
    """All ranks but one enter a collective; that one aborts the group meanwhile."""
    import torch
    import torch.distributed as dist

    if is_victim:
        time.sleep(0.5)
        dist.distributed_c10d._abort_process_group()
        fail(model)
    dist.all_reduce(torch.ones(4))


def skip(model, is_victim):
    """One rank leaves a collective out, and works on for longer than the others wait."""
    import torch
    import torch.distributed as dist

    if is_victim:
        time.sleep(COLLECTIVE_S + 1)
        return
    dist.all_reduce(torch.ones(4))


ENDS = {
    "exception": fail,
    "out of memory": run_out_of_memory,
    "thread exception": fail_in_thread,
    "exit": leave,
    "_exit": leave_at_once,
    "kill": kill,
    "evaluation": evaluate,
    "evaluation exception": fail_in_evaluation,
    "collective exception": meet,
    "collective abort": abort,
    "collective skip": skip,
}
TOGETHER = {"collective exception", "collective abort", "collective skip"}


def make_group():
    import datetime

    import torch.distributed as dist

    wait_s = COLLECTIVE_S if WAY == "collective skip" else 60.0
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=wait_s))


def leave_group():
    import torch.distributed as dist

    if WAY != "group kept":
        dist.destroy_process_group()
