"""The changes that may be tried, and which of them the figures of a run leave hopeless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.launch.trying.applying import Change

LEAST_FRAC = 0.03
"""A part of the step that is smaller cannot gain what a trial could measure."""
LARGE_FRAC = 0.10


@dataclass(frozen=True)
class Candidate:
    """A change to try. Of several with the same `knob` at most one is chosen. `code` is what the user would write.

    `alters_numbers` means that losses are expected to differ, beyond rounding in another order.
    """

    knob: str
    label: str
    change: Change
    code: str
    alters_numbers: bool = False


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
    return [*_list_loading(seen), *_list_threads(seen), *_list_update(seen), *_list_modes(seen), *_list_ranks(seen)]


def _list_loading(seen: Seen) -> Iterator[Candidate]:
    if seen.workers is None:
        return
    # Workers also take processors from a step that does not wait for them, so fewer are tried wherever there are any.
    counts = {0, 1, 2, max(seen.cores // 2, 1), seen.cores} - {seen.workers}
    counts = {count for count in counts if count < seen.workers or seen.waits_frac >= LEAST_FRAC}
    asked = seen.asked.get("num_workers")
    order = sorted(counts, key=lambda count: (count != asked, abs(count - seen.cores)))
    for count in order:
        change: dict[str, Any] = {"loader.num_workers": count}
        code = f"num_workers={count}"
        if count and not seen.workers:
            change["loader.persistent_workers"] = True
            code += ", persistent_workers=True"
        yield Candidate("num_workers", code, change, f"DataLoader(…, {code})")
    if seen.workers and seen.waits_frac >= LEAST_FRAC:
        yield Candidate(
            "prefetch", "prefetch_factor=8", {"loader.prefetch_factor": 8}, "DataLoader(…, prefetch_factor=8)"
        )
        if not seen.persistent:
            yield Candidate(
                "persistent",
                "persistent_workers=True",
                {"loader.persistent_workers": True},
                "DataLoader(…, persistent_workers=True)",
            )
        code = 'torch.multiprocessing.set_sharing_strategy("file_system")'
        yield Candidate("sharing", "sharing by files", {"sharing": "file_system"}, code)
    if seen.uses_device:
        yield Candidate(
            "pin_memory",
            "pin_memory=True, non_blocking=True",
            {"loader.pin_memory": True, "non_blocking": True},
            "DataLoader(…, pin_memory=True); batch.to(device, non_blocking=True)",
        )


def _list_threads(seen: Seen) -> Iterator[Candidate]:
    if seen.uses_device or seen.compute_frac < LARGE_FRAC:
        return
    for count in sorted({1, max(seen.cores // 2, 1), seen.cores} - {seen.threads}, reverse=True):
        yield Candidate("threads", f"{count} threads", {"threads": count}, f"torch.set_num_threads({count})")


def _list_update(seen: Seen) -> Iterator[Candidate]:
    if seen.update_frac >= LEAST_FRAC:
        names = {str(entry.get("name", "")) for entry in seen.optimizers}
        name = min(names) if len(names) == 1 else "…"
        for flag in ("fused", "foreach"):
            if not all(entry.get(flag) for entry in seen.optimizers):
                yield Candidate("update", f"{flag}=True", {flag: True}, f"torch.optim.{name}(…, {flag}=True)")
        if seen.calls("embedding"):
            yield Candidate(
                "sparse", "sparse embedding gradients", {"sparse": True}, "nn.Embedding(…, sparse=True)", True
            )
    if seen.facts.get("unused_gradients"):
        yield Candidate(
            "freeze",
            "no gradients for what is not updated",
            {"freeze_unused": True},
            "for p in frozen.parameters(): p.requires_grad_(False)",
        )


def _list_modes(seen: Seen) -> Iterator[Candidate]:
    if seen.facts.get("anomaly_mode"):
        yield Candidate(
            "anomaly", "anomaly detection off", {"anomaly": False}, "torch.autograd.set_detect_anomaly(False)"
        )
    if seen.calls("conv"):
        yield Candidate(
            "channels_last",
            "channels_last",
            {"channels_last": True},
            "model = model.to(memory_format=torch.channels_last)",
        )
    if seen.uses_device:
        if seen.calls("conv") and not seen.facts.get("cudnn_benchmark"):
            change = {"cudnn_benchmark": True, "deterministic": False}
            yield Candidate("cudnn", "cudnn.benchmark", change, "torch.backends.cudnn.benchmark = True")
        if seen.facts.get("matmul_precision") == "highest":
            code = 'torch.set_float32_matmul_precision("high")'
            yield Candidate("precision", "TF32", {"matmul_precision": "high"}, code, True)
        yield Candidate(
            "bfloat16", "bfloat16 autocast", {"bfloat16": True}, 'with torch.autocast("cuda", torch.bfloat16): …', True
        )
    if seen.compute_frac >= LARGE_FRAC:
        yield Candidate("compile", "torch.compile", {"compile": True}, "model.compile()", True)


def _list_ranks(seen: Seen) -> Iterator[Candidate]:
    if seen.ranks < 2 or not seen.facts.get("ddp"):
        return
    for name, value in (("gradient_as_bucket_view", True), ("static_graph", True), ("bucket_cap_mb", 100)):
        yield Candidate(name, f"{name}={value}", {name: value}, f"DistributedDataParallel(…, {name}={value})")
