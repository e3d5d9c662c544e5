"""After a run everything public is the object that it was before."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.callback import callback_handler
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader

from collector.context.hooks import Undo
from tests.support import shapes
from tests.support.recording import record
from tests.support.shapes import held_out

OWNERS: tuple[Any, ...] = (
    torch.autograd,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.Sequential,
    torch.nn.Linear,
    shapes.Net,
    torch.optim.Optimizer,
    torch.optim.SGD,
    torch.amp.GradScaler,
    torch.distributed.ProcessGroup,
    torch.distributed.Work,
    torch._dynamo.eval_frame.OptimizedModule,
    dataloader,
    dataloader.DataLoader,
    dataloader._BaseDataLoaderIter,
    dataloader._MultiProcessingDataLoaderIter,
    dataloader._SingleProcessDataLoaderIter,
    torch.utils.data._utils.worker,
    torch.utils.data._utils.pin_memory,
)


def look() -> dict[str, Any]:
    attributes = {f"{owner.__name__}.{name}": value for owner in OWNERS for name, value in vars(owner).items()}
    lists = {
        "gc": list(gc.callbacks),
        "compile": list(callback_handler.start_callbacks),
        "pre": list(modules._global_forward_pre_hooks.values()),
        "post": list(modules._global_forward_hooks.values()),
        "always": list(modules._global_forward_hooks_always_called),
        "step_pre": list(optimizers._global_optimizer_pre_hooks.values()),
        "step_post": list(optimizers._global_optimizer_post_hooks.values()),
    }
    return attributes | lists


def test_a_run_leaves_everything_as_it_was(tmp_path: Path) -> None:
    held_out.validation_inside_and_after()
    before = look()
    public = (torch.nn.Module.__call__, torch.autograd.backward, torch.Tensor.backward, torch.optim.SGD.step)

    def loop() -> None:
        now = (torch.nn.Module.__call__, torch.autograd.backward, torch.Tensor.backward, torch.optim.SGD.step)
        assert all(a is b for a, b in zip(public, now, strict=True))
        held_out.validation_inside_and_after()

    record(tmp_path, loop)
    after = look()
    changed = [name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)]
    assert [name for name in changed if before.get(name) != after.get(name)] == []


def test_what_somebody_else_patched_since_stays_theirs() -> None:
    class Owner:
        def call(self) -> str:
            return "own"

    undo = Undo()
    undo.patch(Owner, "call", lambda self: "ours")
    theirs = lambda self: "theirs"  # noqa: E731
    Owner.call = theirs  # type: ignore[method-assign]
    undo.restore()
    assert vars(Owner)["call"] is theirs
