"""Apply changes to a training from outside, to try them. Each has the effect of a line that the user would write.

A change is applied after the import of PyTorch and before the script goes on. If the script sets the same knob, its
setting is ignored: the change is to be tried.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

Change = Mapping[str, Any]
"""Knob -> value, as JSON."""
_MOST_LOSSES = 1000


@dataclass(frozen=True)
class Candidate:
    """A change to try. `knob` names the setting that changes: of changes with the same `knob`, at most one is chosen.
    `code` is the line that the user would write.

    `place` names the user's calls that the change rewrites. The change sets `keywords` in the call (None removes one);
    without `keywords` it replaces the call by `code`. `is_slow` means that a trial takes much longer than usual.
    """

    knob: str
    label: str
    change: Change
    code: str
    place: str = ""
    keywords: Mapping[str, Any] | None = None
    is_slow: bool = False


def apply_change(change: Change) -> None:
    """Apply each setting of a change. Raises ValueError for an unknown setting; errors of PyTorch pass through."""
    torch = sys.modules["torch"]
    loader = {name.removeprefix("loader."): value for name, value in change.items() if name.startswith("loader.")}
    if loader:
        _change_loader(torch, loader)
    for name, value in change.items():
        if not name.startswith("loader."):
            if name not in KNOBS:
                raise ValueError(f"no knob {name}")
            KNOBS[name](torch, value)


def _replace_arguments(kind: Any, change: Callable[[dict[str, Any]], None]) -> None:
    make = kind.__init__
    names = inspect.signature(make)

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = names.bind(self, *args, **kwargs)
        given = dict(bound.arguments)
        rest = given.pop("kwargs", {})
        given.pop("self", None)
        change(given)
        make(self, **given, **rest)

    kind.__init__ = made


def _change_loader(torch: Any, values: Mapping[str, Any]) -> None:
    from torch.utils.data import DataLoader

    def change(given: dict[str, Any]) -> None:
        given.update(values)
        if not given.get("num_workers"):
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                given.pop(name, None)

    _replace_arguments(DataLoader, change)


def _set_threads(torch: Any, value: int) -> None:
    torch.set_num_threads(value)
    torch.set_num_threads = lambda count: None


def _set_interop(torch: Any, value: int) -> None:
    torch.set_num_interop_threads(value)
    torch.set_num_interop_threads = lambda count: None


def _set_sharing(torch: Any, value: str) -> None:
    from torch.multiprocessing import set_sharing_strategy

    set_sharing_strategy(value)


def _change_optimizers(flag: str) -> Callable[[Any, bool], None]:
    def apply(torch: Any, value: bool) -> None:
        other = {"fused": "foreach", "foreach": "fused"}[flag]

        def change(given: dict[str, Any]) -> None:
            given[flag] = value
            given.pop(other, None)

        for kind in list(vars(torch.optim).values()):
            if inspect.isclass(kind) and flag in inspect.signature(kind.__init__).parameters:
                _replace_arguments(kind, change)

    return apply


def _set_none(torch: Any, value: bool) -> None:
    for kind in (torch.optim.Optimizer, torch.nn.Module):
        zero = kind.zero_grad
        kind.zero_grad = functools.wraps(zero)(lambda self, set_to_none=True, zero=zero: zero(self, set_to_none=value))


def _leave_anomaly(torch: Any, value: bool) -> None:
    torch.autograd.set_detect_anomaly(value)

    @contextmanager
    def nothing(*args: Any, **kwargs: Any) -> Any:
        yield

    torch.autograd.detect_anomaly = torch.autograd.set_detect_anomaly = nothing
    torch.autograd.anomaly_mode.detect_anomaly = torch.autograd.anomaly_mode.set_detect_anomaly = nothing


def _set_flag(*path: str) -> Callable[[Any, Any], None]:
    def apply(torch: Any, value: Any) -> None:
        place = torch
        for name in path[:-1]:
            place = getattr(place, name)
        setattr(place, path[-1], value)

    return apply


def _use_flash(torch: Any, value: bool) -> None:
    torch.backends.cuda.enable_flash_sdp(value)
    torch.backends.cuda.enable_flash_sdp = lambda enabled: None


def _set_precision(torch: Any, value: str) -> None:
    torch.set_float32_matmul_precision(value)
    torch.backends.cudnn.allow_tf32 = True


def _at_first_call(change: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a function that applies `change` to (torch, module), where the module is the first one with parameters
    that is called in training, right before this call.
    """

    def apply(torch: Any, value: Any) -> None:
        done: set[int] = set()

        def before(module: Any, args: Any) -> None:
            if done or not module.training or not torch.is_grad_enabled():
                return
            if next(module.parameters(), None) is not None:
                done.add(id(module))
                handle.remove()
                change(torch, module)

        handle = torch.nn.modules.module.register_module_forward_pre_hook(before)

    return apply


def _use_channels_last(torch: Any, module: Any) -> None:
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    for each in module.parameters():
        if each.dim() in layouts:
            each.data = each.data.contiguous(memory_format=layouts[each.dim()])


def _compile(torch: Any, module: Any) -> None:
    module.compile()


def _use_bfloat16(torch: Any, module: Any) -> None:
    forward = module.forward
    device = next(module.parameters()).device.type
    if device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise ValueError("this processor has no instructions for bfloat16")

    @functools.wraps(forward)
    def mixed(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, torch.bfloat16):
            found = forward(*args, **kwargs)
        return found.float() if isinstance(found, torch.Tensor) and found.dtype == torch.bfloat16 else found

    module.forward = mixed


def _use_sparse(torch: Any, value: bool) -> None:
    for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
        _replace_arguments(kind, lambda given: given.update(sparse=value))


def _freeze_unused(torch: Any, value: bool) -> None:
    """After the first update, switch off the gradients of parameters that belong to no optimizer."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    roots: list[Any] = []
    updated: set[int] = set()

    def note(module: Any, args: Any) -> None:
        if module.training and not any(module is each for root in roots for each in root.modules()):
            roots.append(module)

    def freeze(optimizer: Any, args: Any, kwargs: Any) -> None:
        updated.update(id(each) for group in optimizer.param_groups for each in group["params"])
        for root in roots:
            for each in root.parameters():
                if id(each) not in updated and each.grad is not None:
                    each.requires_grad_(False)
                    each.grad = None

    torch.nn.modules.module.register_module_forward_pre_hook(note)
    register_optimizer_step_post_hook(freeze)


def _change_ddp(name: str) -> Callable[[Any, Any], None]:
    def apply(torch: Any, value: Any) -> None:
        from torch.nn.parallel import DistributedDataParallel

        _replace_arguments(DistributedDataParallel, lambda given: given.update({name: value}))

    return apply


def _flush_subnormals(torch: Any, value: bool) -> None:
    # A setting of a thread. The threads that torch starts later take it from this one.
    if not torch.set_flush_denormal(value):
        raise ValueError("this processor cannot flush subnormal numbers to zero")
    torch.set_flush_denormal = lambda mode: True


def _copy_without_wait(torch: Any, value: bool) -> None:
    copy = torch.Tensor.to

    @functools.wraps(copy)
    def copied(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "cpu" and self.is_pinned():
            kwargs.setdefault("non_blocking", value)
        return copy(self, *args, **kwargs)

    torch.Tensor.to = copied


KNOBS: Mapping[str, Callable[[Any, Any], None]] = {
    "threads": _set_threads,
    "interop": _set_interop,
    "sharing": _set_sharing,
    "fused": _change_optimizers("fused"),
    "foreach": _change_optimizers("foreach"),
    "zero_grad_none": _set_none,
    "anomaly": _leave_anomaly,
    "cudnn_benchmark": _set_flag("backends", "cudnn", "benchmark"),
    "deterministic": _set_flag("backends", "cudnn", "deterministic"),
    "matmul_precision": _set_precision,
    "flash_sdp": _use_flash,
    "channels_last": _at_first_call(_use_channels_last),
    "compile": _at_first_call(_compile),
    "bfloat16": _at_first_call(_use_bfloat16),
    "sparse": _use_sparse,
    "freeze_unused": _freeze_unused,
    "flush_denormal": _flush_subnormals,
    "non_blocking": _copy_without_wait,
    "bucket_cap_mb": _change_ddp("bucket_cap_mb"),
    "gradient_as_bucket_view": _change_ddp("gradient_as_bucket_view"),
    "static_graph": _change_ddp("static_graph"),
}


def follow_losses(torch: Any) -> list[Any]:
    """Return a list to which each later loss is appended as a tensor, up to _MOST_LOSSES: the scalars whose backward
    the script calls."""
    losses: list[Any] = []
    backward = torch.Tensor.backward

    @functools.wraps(backward)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(losses) < _MOST_LOSSES and self.numel() == 1:
            losses.append(self.detach().clone())
        return backward(self, *args, **kwargs)

    torch.Tensor.backward = noted
    return losses


def seed_all(torch: Any, seed: int) -> None:
    """Seed the random numbers of Python, torch and NumPy, so that all trials draw the same. A seed that the script sets
    later replaces this one."""
    import random

    random.seed(seed)
    torch.manual_seed(seed)
    with suppress(ImportError):
        import numpy as np

        np.random.seed(seed)
