"""The changes that may be tried, and which of them the figures of a run leave hopeless."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.launch.trying.applying import Change

LEAST_FRAC = 0.03
"""A part of the step that is smaller cannot gain what a trial could measure."""
LARGE_FRAC = 0.10


@dataclass(frozen=True)
class Candidate:
    """A change to try. Of several with the same `knob` at most one is chosen. `code` is what the user would write.

    `place` names the calls of the user's that the change rewrites: with these `keywords` (None takes one away), or
    without any, by `code`. `is_slow` means that a trial takes much longer than others.
    """

    knob: str
    label: str
    change: Change
    code: str
    place: str = ""
    keywords: Mapping[str, Any] | None = None
    is_slow: bool = False


def _change_call(knob: str, place: str, call: str, change: Change, **keywords: Any) -> Candidate:
    label = ", ".join(f"{name}={value!r}" for name, value in keywords.items() if value is not None)
    return Candidate(knob, label, change, f"{call}(…, {label})", place, keywords)


@dataclass(frozen=True)
class Seen:
    """What a first run showed. Shares are of the mean step; `workers` is None without a DataLoader."""

    cores: int
    threads: int | None = None
    workers: int | None = None
    prefetch: int | None = None
    persistent: bool = False
    waits_frac: float = 0.0
    update_frac: float = 0.0
    compute_frac: float = 0.0
    operators: frozenset[str] = frozenset()
    optimizers: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    uses_device: bool = False
    ranks: int = 1
    asked: Mapping[str, Any] = field(default_factory=dict)
    """DataLoader arguments that the run's own suggestions set."""

    def calls(self, *names: str) -> bool:
        return any(name in operator for operator in self.operators for name in names)


def list_candidates(seen: Seen) -> list[Candidate]:
    """Return the changes that may gain, the most promising first."""
    surplus = float((seen.workers or 0) > seen.cores), float((seen.threads or 0) > seen.cores)
    promises: dict[Callable[[Seen], Iterator[Candidate]], float] = {
        _list_modes: 2.0 if seen.facts.get("anomaly_mode") else 0.3,
        _list_loading: seen.waits_frac + surplus[0],
        _list_threads: seen.compute_frac * (seen.threads != seen.cores) / 2 + surplus[1],
        _list_update: seen.update_frac,
        _list_ranks: 0.2,
    }
    found = [each for group in sorted(promises, key=lambda group: -promises[group]) for each in group(seen)]
    return sorted(found, key=lambda each: each.is_slow)


def _list_loading(seen: Seen) -> Iterator[Candidate]:
    if seen.workers is None:
        return
    # Workers also take processors from a step that does not wait for them, so fewer are tried wherever there are any.
    counts = {0, 1, 2, max(seen.cores // 2, 1), seen.cores} - {seen.workers}
    counts = {count for count in counts if count < seen.workers or seen.waits_frac >= LEAST_FRAC}
    asked = seen.asked.get("num_workers")
    for count in sorted(counts, key=lambda count: (count != asked, count != 0, abs(count - seen.cores))):
        more: dict[str, Any] = {}
        if not count:
            more = dict.fromkeys(("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"))
        elif not seen.workers:
            more = {"persistent_workers": True}
        yield _change_loader("num_workers", num_workers=count, **more)
    if seen.workers and seen.waits_frac >= LEAST_FRAC:
        yield _change_loader("prefetch", prefetch_factor=seen.asked.get("prefetch_factor", 8))
        if "in_order" in seen.asked:
            yield _change_loader("in_order", in_order=False)
        if not seen.persistent:
            yield _change_loader("persistent", persistent_workers=True)
        code = 'torch.multiprocessing.set_sharing_strategy("file_system")'
        yield Candidate("sharing", "sharing by files", {"sharing": "file_system"}, code)
    if seen.uses_device:
        yield Candidate(
            "pin_memory",
            "pin_memory=True, non_blocking=True",
            {"loader.pin_memory": True, "non_blocking": True},
            "DataLoader(…, pin_memory=True); batch.to(device, non_blocking=True)",
        )


def _change_loader(knob: str, **keywords: Any) -> Candidate:
    change = {f"loader.{name}": value for name, value in keywords.items() if value is not None}
    return _change_call(knob, "DataLoader", "DataLoader", change, **keywords)


def _list_threads(seen: Seen) -> Iterator[Candidate]:
    if seen.uses_device or seen.compute_frac < LARGE_FRAC:
        return
    for count in sorted({1, max(seen.cores // 2, 1), seen.cores} - {seen.threads}, reverse=True):
        label = f"{count} thread{'s' if count > 1 else ''}"
        yield Candidate("threads", label, {"threads": count}, f"torch.set_num_threads({count})", "threads")


def _list_update(seen: Seen) -> Iterator[Candidate]:
    if seen.update_frac >= LEAST_FRAC:
        names = {str(entry.get("name", "")) for entry in seen.optimizers}
        call = f"torch.optim.{min(names) if len(names) == 1 else '…'}"
        for flag in ("fused", "foreach"):
            if not all(entry.get("fused") or entry.get(flag) for entry in seen.optimizers):
                other = {"foreach": None} if flag == "fused" else {"fused": None}
                yield _change_call("update", "optimizer", call, {flag: True}, **{flag: True, **other})
        if seen.calls("embedding"):
            yield _change_call("sparse", "embedding", "nn.Embedding", {"sparse": True}, sparse=True)
    if seen.facts.get("unused_gradients"):
        code = "for p in frozen.parameters(): p.requires_grad_(False)"
        yield Candidate("freeze", "no gradients for what is not updated", {"freeze_unused": True}, code)


def _list_modes(seen: Seen) -> Iterator[Candidate]:
    if seen.facts.get("anomaly_mode"):
        code = "torch.autograd.set_detect_anomaly(False)"
        yield Candidate("anomaly", "anomaly detection off", {"anomaly": False}, code, "anomaly")
    if seen.calls("conv"):
        code = "model = model.to(memory_format=torch.channels_last)"
        yield Candidate("channels_last", "channels_last", {"channels_last": True}, code)
    if seen.uses_device:
        if seen.calls("conv") and not seen.facts.get("cudnn_benchmark"):
            change = {"cudnn_benchmark": True, "deterministic": False}
            yield Candidate("cudnn", "cudnn.benchmark", change, "torch.backends.cudnn.benchmark = True")
        if seen.facts.get("matmul_precision") == "highest":
            code = 'torch.set_float32_matmul_precision("high")'
            yield Candidate("precision", "TF32", {"matmul_precision": "high"}, code)
        code = 'with torch.autocast("cuda", torch.bfloat16): …'
        yield Candidate("bfloat16", "bfloat16 autocast", {"bfloat16": True}, code)
    if seen.compute_frac >= LARGE_FRAC:
        yield Candidate("compile", "torch.compile", {"compile": True}, "model.compile()", is_slow=True)


def _list_ranks(seen: Seen) -> Iterator[Candidate]:
    if seen.ranks < 2 or not seen.facts.get("ddp"):
        return
    for name, value in (("gradient_as_bucket_view", True), ("static_graph", True), ("bucket_cap_mb", 100)):
        yield _change_call(name, "ddp", "DistributedDataParallel", {name: value}, **{name: value})
