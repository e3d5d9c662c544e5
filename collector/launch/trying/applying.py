"""Apply changes to a training from outside, to try them. Each has the effect of a line that the user would write.

A change is applied after the import of PyTorch and before the script goes on. If the script sets the same knob, its
setting is ignored or replaced: the change is to be tried.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from collector.format.switches import SWITCHES

Change = Mapping[str, Any]
"""Knob -> value, as JSON."""
_MOST_LOSSES = 1000
_FIRST_UPDATES = 3
"""Each module that the script calls in training has been called by then."""


@dataclass(frozen=True)
class Candidate:
    """A change to try. `knob` names the setting that changes: of changes with the same `knob`, at most one is chosen.
    `code` is the line that the user would write.

    `place` names the user's calls that the change rewrites. The change sets `keywords` in the call (None removes one);
    without `keywords` it replaces the call by `code`. `is_slow` means that a trial takes much longer than usual.
    `most_frac` is the share of the step that the setting governs, as the recorded run shows it.
    """

    knob: str
    label: str
    change: Change
    code: str
    place: str = ""
    keywords: Mapping[str, Any] | None = None
    is_slow: bool = False
    most_frac: float = 1.0


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


def _replace_arguments(kind: Any, change: Callable[[dict[str, Any]], None], method: str = "__init__") -> None:
    make = getattr(kind, method)
    names = inspect.signature(make)

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = names.bind(self, *args, **kwargs)
        given = dict(bound.arguments)
        rest = given.pop("kwargs", {})
        given.pop("self", None)
        change(given)
        return make(self, **given, **rest)

    setattr(kind, method, made)


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


def _run_after_update(*lines: str) -> Callable[[Any, Any], None]:
    """Return a function that runs the user's `lines` after the first update: the script has set its own by then. A line
    may have {} for the value of the change.
    """

    def apply(torch: Any, value: Any) -> None:
        _after_updates(1, lambda: exec("\n".join(lines).format(value), {"torch": torch}))

    return apply


def _after_updates(count: int, call: Callable[[], object]) -> None:
    """Call a function once, after `count` updates of an optimizer."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    left = [count]

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        left[0] -= 1
        if not left[0]:
            call()

    register_optimizer_step_post_hook(after)


def _at_first_calls(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], None]:
    """Return a function that applies `change` to (torch, module, args) for each module with parameters that the script
    calls in training, right before the first call. It may return other args for this call. A module that another one
    calls is changed with that one.
    """

    def apply(torch: Any, value: Any) -> None:
        done: set[int] = set()

        def before(module: Any, args: Any) -> Any:
            is_due = id(module) not in done and module.training and torch.is_grad_enabled()
            if not is_due or next(module.parameters(), None) is None:
                return None
            done.update(map(id, module.modules()))
            return change(torch, module, args)

        handle = torch.nn.modules.module.register_module_forward_pre_hook(before)
        _after_updates(_FIRST_UPDATES, handle.remove)

    return apply


def _use_channels_last(torch: Any, module: Any, args: Any) -> None:
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    for each in module.parameters():
        if each.dim() in layouts:
            each.data = each.data.contiguous(memory_format=layouts[each.dim()])


def _compile(torch: Any, module: Any, args: Any) -> None:
    module.compile()


def _use_bfloat16(torch: Any, module: Any, args: Any) -> None:
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


def _use_single(torch: Any, module: Any, args: Any) -> Any:
    """Compute a module in float32, with this default dtype in its forward. Its inputs and results stay float64, for the
    script's own operators."""
    from torch.utils._pytree import tree_map_only

    def convert(values: Any, before: Any, after: Any) -> Any:
        return tree_map_only(torch.Tensor, lambda each: each.to(after) if each.dtype == before else each, values)

    usual = torch.get_default_dtype()

    def enter(module: Any, args: Any, kwargs: Any) -> Any:
        torch.set_default_dtype(torch.float32)
        return convert((args, kwargs), torch.float64, torch.float32)

    def leave(module: Any, args: Any, result: Any) -> Any:
        torch.set_default_dtype(usual)
        return convert(result, torch.float32, torch.float64)

    module.float()
    module.register_forward_pre_hook(enter, with_kwargs=True)
    module.register_forward_hook(leave)
    return enter(module, args, {})[0]


def _keep_activations(torch: Any, value: bool) -> None:
    import torch.utils.checkpoint as checkpoints

    own = set(inspect.signature(checkpoints.checkpoint).parameters) - {"function"}

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name: value for name, value in kwargs.items() if name not in own})

    torch.utils.checkpoint.checkpoint = call


def _return_no_weights(torch: Any, value: bool) -> None:
    def change(given: dict[str, Any]) -> None:
        given["need_weights"] = value

    _replace_arguments(torch.nn.MultiheadAttention, change, "forward")


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
    "sharing": _set_sharing,
    "fused": _change_optimizers("fused"),
    "foreach": _change_optimizers("foreach"),
    "zero_grad_none": _set_none,
    "anomaly": _leave_anomaly,
    "cudnn_benchmark": _run_after_update(
        "torch.backends.cudnn.benchmark = {0}", "torch.backends.cudnn.deterministic = not {0}"
    ),
    "matmul_precision": _run_after_update(
        "torch.set_float32_matmul_precision({!r})", "torch.backends.cudnn.allow_tf32 = True"
    ),
    "channels_last": _at_first_calls(_use_channels_last),
    "compile": _at_first_calls(_compile),
    "bfloat16": _at_first_calls(_use_bfloat16),
    "float32": _at_first_calls(_use_single),
    "checkpoint": _keep_activations,
    "need_weights": _return_no_weights,
    "sparse": _use_sparse,
    "freeze_unused": _freeze_unused,
    "flush_denormal": _flush_subnormals,
    "non_blocking": _copy_without_wait,
    "bucket_cap_mb": _change_ddp("bucket_cap_mb"),
    "gradient_as_bucket_view": _change_ddp("gradient_as_bucket_view"),
    "static_graph": _change_ddp("static_graph"),
    **{each.name: _run_after_update(each.code) for each in SWITCHES},
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
