"""The settings of a training that can be changed from outside, each in one place: what it affects, its value, and
values to try.

A change can gain at most the share of the step that the setting affects. `stepscope run --try` tries the changes in the
order of these shares. For some changes a rule predicts the step. Any other change, if it is to a value that is usually
best, is worth a look. The texts on such changes are in `words/texts/knobs.txt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collector.format.phases import COMPUTING, IN_MODEL
from profiler_server.diagnosis.limits import knobs as limits
from profiler_server.diagnosis.limits.facts import FEW_ROWS_FRAC, LARGE_PART_FRAC, NOISY_FRAC
from profiler_server.facts.case import Case, Hotspot
from profiler_server.facts.steps import count_parameters


@dataclass(frozen=True)
class Change:
    """A change of a setting. Only one change of each `knob` is made at a time. `code` is the line that the user would
    write. `bound_frac` is the largest possible gain, as a share of the mean step.

    `change` is what a trial sets; empty if a trial cannot make the change. `place` names the user's calls that the
    change rewrites: `keywords` are set in them (None removes one), or `code` replaces them if `keywords` is None.
    `is_slow` means that a trial takes much longer than others. `look` is the case of the text that explains why the
    change is usually better, "" if it is not.
    """

    knob: str
    label: str
    change: Mapping[str, Any]
    code: str
    bound_frac: float
    place: str = ""
    keywords: Mapping[str, Any] | None = None
    is_slow: bool = False
    look: str = ""


Asked = Mapping[str, Any]
"""DataLoader arguments that the run's own suggestions set."""


def list_changes(case: Case, asked: Asked | None = None) -> list[Change]:
    """Return the changes that may gain enough for a trial, the largest possible gain first."""
    found = [change for knob in KNOBS for change in knob(case, asked or {})]
    return sorted((each for each in found if each.bound_frac >= limits.TRIED_FRAC), key=lambda each: -each.bound_frac)


def _change_call(knob: str, place: str, call: str, bound_frac: float, look: str = "", **keywords: Any) -> Change:
    """Return a change that sets `keywords` as arguments of a call. The value None removes an argument."""
    change = {name: value for name, value in keywords.items() if value is not None}
    label = ", ".join(f"{name}={value!r}" for name, value in change.items())
    return Change(knob, label, change, f"{call}(…, {label})", bound_frac, place, keywords, look=look)


def _change_loader(knob: str, bound_frac: float, look: str = "", **keywords: Any) -> Change:
    found = _change_call(knob, "DataLoader", "DataLoader", bound_frac, look, **keywords)
    return replace(found, change={f"loader.{name}": value for name, value in found.change.items()})


def _count_cores(case: Case) -> int:
    return max(int(case.host.cores), 1)


def _find_crowded_frac(case: Case, workers: int) -> float:
    """Return the share of the step that computing waits for a processor if all threads and workers compute."""
    wanted = workers + (1 if case.device.is_used else case.manifest.torch_threads or 1)
    return case.steps.share(*IN_MODEL) * max(1.0 - _count_cores(case) / wanted, 0.0)


def _load_otherwise(case: Case, asked: Asked) -> Iterator[Change]:
    loaders = [each.loader for each in (case.loading, *case.other_loadings) if each.loader is not None]
    loader = max(loaders, key=lambda each: each.num_workers, default=None)
    if loader is None:
        return
    now, cores, wait = loader.num_workers, _count_cores(case), case.steps.share("data_wait")
    # Workers also take processors from a step that does not wait for batches.
    fewer, wanted = max(wait, _find_crowded_frac(case, now)), asked.get("num_workers")
    work_ns = case.loading.batch_ns * case.loading.loop.fetches
    is_tiny = case.loading.batches is not None and work_ns <= limits.TINY_WORK_FRAC * case.loading.wait_ns
    look = "workers" if now and is_tiny else ""
    for count in sorted(
        {0, 1, 2, max(cores // 2, 1), cores} - {now}, key=lambda n: (n != wanted, n != 0, abs(n - cores))
    ):
        more: dict[str, Any] = {}
        if not count:
            more = dict.fromkeys(("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"))
        elif not now:
            more = {"persistent_workers": True}
        bound = fewer if count < now else wait
        yield _change_loader("num_workers", bound, "" if count else look, num_workers=count, **more)
    if now:
        yield _change_loader("prefetch", wait, prefetch_factor=asked.get("prefetch_factor", 8))
        if "in_order" in asked:
            yield _change_loader("in_order", wait, in_order=False)
        if not loader.persistent_workers:
            yield _change_loader("persistent", wait, persistent_workers=True)
        code = 'torch.multiprocessing.set_sharing_strategy("file_system")'
        yield Change("sharing", "sharing by files", {"sharing": "file_system"}, code, wait)
    if case.device.is_used and not loader.pin_memory:
        change = {"loader.pin_memory": True, "non_blocking": True}
        code = "DataLoader(…, pin_memory=True); batch.to(device, non_blocking=True)"
        copied = case.steps.share("data_wait", "h2d", "forward")
        yield Change("pin_memory", "pin_memory=True, non_blocking=True", change, code, copied)


def _compute_by_threads(case: Case, asked: Asked) -> Iterator[Change]:
    now, cores, computed = case.manifest.torch_threads, _count_cores(case), case.steps.share(*IN_MODEL)
    if case.device.is_used or not now or computed < limits.COMPUTED_FRAC:
        return
    large = case.steps.kinds.large_frac
    large = (1.0 - limits.UNKNOWN_SMALL_FRAC) * computed if large is None else min(large, computed)
    workers, load = case.loading.loop.model.workers, case.host.load
    free = cores - load.others - load.workers if load is not None else 0.0
    for count in sorted({1, max(cores // 2, 1), cores} - {now}, reverse=True):
        if count < now and case.host.others_frac >= NOISY_FRAC:
            continue  # the fewer threads, the fewer wait for other programs: that says nothing of an idle machine
        label = f"{count} thread{'s' if count > 1 else ''}"
        bound = large * (1.0 - now / count) if count > now else max(_find_crowded_frac(case, workers), computed - large)
        look = "threads" if now == 1 < count <= round(free) else ""
        code = f"torch.set_num_threads({count})"
        yield Change("threads", label, {"threads": count}, code, bound, "threads", look=look)


_FUSED = frozenset(("Adam", "AdamW", "SGD", "Adagrad"))
_TAKE_SPARSE = frozenset(("SGD", "Adagrad", "SparseAdam"))


def _is_slower_looped(optimizer: Mapping[str, Any]) -> bool:
    name = str(optimizer.get("name", ""))
    return name in _FUSED and (name != "SGD" or optimizer.get("momentum") is not False)


def _update_otherwise(case: Case, asked: Asked) -> Iterator[Change]:
    noted = case.facts.get("optimizers")
    entries = [each for each in noted if isinstance(each, Mapping)] if isinstance(noted, list) else []
    names, share, kinds = (
        {str(each.get("name", "")) for each in entries},
        case.steps.share("optimizer"),
        case.steps.kinds,
    )
    call = f"torch.optim.{min(names) if len(names) == 1 else '…'}"
    for flag, other in (("fused", "foreach"), ("foreach", "fused")):
        if not entries or not all(each.get("fused") or each.get(flag) for each in entries):
            look = (
                "update"
                if flag == "fused" and entries and not case.device.is_used and all(map(_is_slower_looped, entries))
                else ""
            )
            yield _change_call("update", "optimizer", call, share, look, **{flag: True, other: None})
    if kinds.lookups_frac:
        updated = sum(count for each in entries if isinstance(count := each.get("parameters"), int))
        bound = kinds.find_dense_frac(share, updated)
        look = "sparse" if kinds.rows_frac <= FEW_ROWS_FRAC else ""
        found = _change_call("sparse", "embedding", "nn.Embedding", bound, look, sparse=True)
        yield found if names & _TAKE_SPARSE else replace(found, change={})
    code = "optimizer.zero_grad(set_to_none=True)"
    yield Change("zero_grad", "set_to_none=True", {"zero_grad_none": True}, code, kinds.kept_frac, look="zero_grad")
    if case.unused is not None and case.unused.parameters > case.unused.held:
        code = "for p in frozen.parameters(): p.requires_grad_(False)"
        backward, label = case.steps.share("backward"), "no gradients for what is not updated"
        yield Change("freeze", label, {"freeze_unused": True}, code, backward)


def _leave_modes(case: Case, asked: Asked) -> Iterator[Change]:
    if case.facts.get("anomaly_mode"):
        code, share = "torch.autograd.set_detect_anomaly(False)", case.steps.share(*IN_MODEL)
        yield Change("anomaly", "anomaly detection off", {"anomaly": False}, code, share, "anomaly")
    for name, code in case.manifest.switched.items():
        look = "flash" if name == "flash_sdp" else "switch"
        yield Change(name, code, {name: True}, code, _find_switched_frac(case, name), look=look)


def _find_switched_frac(case: Case, name: str) -> float:
    """Return the share of the step that a switch of PyTorch affects."""
    kinds = case.steps.kinds
    if name == "flash_sdp":
        return kinds.scores_frac if kinds.is_fallback else 0.0
    if name == "cudnn":
        return kinds.convolutions_frac if case.device.is_used else 0.0
    return 0.0 if name == "mkldnn" and case.device.is_used else case.steps.share(*IN_MODEL)


def _lay_out(case: Case, asked: Asked) -> Iterator[Change]:
    kinds = case.steps.kinds
    if not kinds.has_channels_last:
        code, look = (
            "model = model.to(memory_format=torch.channels_last)  # of volumes: channels_last_3d",
            "" if kinds.has_channels_last is None else "layout",
        )
        share = kinds.convolutions_frac
        yield Change("channels_last", "channels_last", {"channels_last": True}, code, share, look=look)
    if any(entry.kind == "cuda" for entry in case.device.entries) and not case.facts.get("cudnn_benchmark"):
        change, code = {"cudnn_benchmark": True, "deterministic": False}, "torch.backends.cudnn.benchmark = True"
        look = "cudnn" if case.facts.get("cudnn_benchmark") is False else ""
        yield Change("cudnn", "cudnn.benchmark", change, code, kinds.convolutions_frac, look=look)


def _attend(case: Case, asked: Asked) -> Iterator[Change]:
    kinds = case.steps.kinds
    if kinds.is_fallback or (kinds.drops_scores and not case.device.is_used):
        return  # on a processor, only attention without dropout has a kernel
    label, change, look = "scaled_dot_product_attention", {}, "attention"
    code = "out = torch.nn.functional.scaled_dot_product_attention(q, k, v)"
    if any(name.startswith("torch.MultiheadAttention.") for spot in _list_spots(case) for name in spot.calls):
        label, change, look = "need_weights=False", {"need_weights": False}, "weights"
        code = "result, _ = attention(query, key, value, need_weights=False)"
    yield Change("attention", label, change, code, kinds.scores_frac, look=look)


def _compute_shorter(case: Case, asked: Asked) -> Iterator[Change]:
    device, kinds, computed = case.device, case.steps.kinds, case.steps.share(*IN_MODEL)
    busy = device.shares.compute if device.shares is not None else computed
    if device.is_used and case.facts.get("matmul_precision") == "highest":
        code, full = 'torch.set_float32_matmul_precision("high")', device.full_precision_frac
        share = busy if full is None else full * busy
        yield Change("precision", "TF32", {"matmul_precision": "high"}, code, share)
    if device.is_used or computed >= limits.COMPUTED_FRAC:
        code = f'with torch.autocast("{"cuda" if device.is_used else "cpu"}", torch.bfloat16): …'
        yield Change("bfloat16", "bfloat16 autocast", {"bfloat16": True}, code, busy)
    double, whole = count_parameters(case.facts)
    if double:
        yield Change("float32", "float32", {"float32": True}, "model = model.float()", computed * double / whole)
    again = [spot.rerun_frac for spot in _list_spots(case) if spot.function.endswith(".forward")]
    code = "x = block(x)  # instead of torch.utils.checkpoint.checkpoint(block, x)"
    yield Change("checkpoint", "no checkpointing", {"checkpoint": False}, code, sum(again))
    if computed >= limits.COMPUTED_FRAC and not kinds.differentiates_twice:
        look = "compile" if kinds.pointwise_calls >= limits.MANY_POINTWISE and _is_of_modules(case) else ""
        bound = computed - min(kinds.large_frac or 0.0, computed) if look else computed
        yield Change("compile", "torch.compile", {"compile": True}, "model.compile()", bound, is_slow=True, look=look)


def _flush_subnormals(case: Case, asked: Asked) -> Iterator[Change]:
    if case.device.is_used:
        return
    is_slow = case.steps.kinds.slow_products_frac >= LARGE_PART_FRAC and case.host.others_frac < NOISY_FRAC
    is_seen = case.manifest.subnormal_frac >= limits.SEEN_SUBNORMAL_FRAC
    # They slow all operators down.
    share = case.steps.share(*COMPUTING) * (1.0 if is_slow or is_seen else limits.SUBNORMAL_FRAC)
    code, change = "torch.set_flush_denormal(True)", {"flush_denormal": True}
    look = "subnormals_seen" if is_seen else "subnormals" if is_slow else ""
    yield Change("flush_denormal", "subnormals flushed to zero", change, code, share, look=look)


def _list_spots(case: Case) -> Sequence[Hotspot]:
    return case.lines.hotspots if case.lines is not None else ()


def _is_of_modules(case: Case) -> bool:
    """Return whether the user's line with the most operators is the forward of a module, so that it can be compiled."""
    lines = [spot for spot in _list_spots(case) if spot.work is not None]
    most = max(lines, key=lambda spot: spot.work.calls if spot.work is not None else 0.0, default=None)
    return most is not None and most.function.endswith(".forward")


def _reduce_otherwise(case: Case, asked: Asked) -> Iterator[Change]:
    if case.ranks.world_size < 2 or not case.facts.get("ddp"):
        return
    share = case.steps.share("communication") + limits.REDUCED_FRAC * case.steps.share("backward")
    for name, value in (("gradient_as_bucket_view", True), ("static_graph", True), ("bucket_cap_mb", 100)):
        yield _change_call(name, "ddp", "DistributedDataParallel", share, "", **{name: value})


KNOBS: tuple[Callable[[Case, Asked], Iterator[Change]], ...] = (
    _leave_modes,
    _load_otherwise,
    _compute_by_threads,
    _update_otherwise,
    _lay_out,
    _attend,
    _compute_shorter,
    _flush_subnormals,
    _reduce_otherwise,
)
PROMISED: Mapping[str, Mapping[str, Any]] = {
    "blocking_copy": {"non_blocking": True},
    "bucket_copies": {"gradient_as_bucket_view": True},
    "bucket_size": {},
    "channels_last": {"channels_last": True},
    "debug_modes": {"anomaly": False},
    "launch_bound": {"compile": True},
    "needless_grad": {"freeze_unused": True},
    "no_workers": {},
    "optimizer_loop": {"fused": True},
    "pageable_copy": {"loader.pin_memory": True},
    "shallow_prefetch": {},
    "tf32_off": {"matmul_precision": "high"},
    "threads_over_cores": {},
    "too_few_workers": {},
    "unfused_pointwise": {"compile": True},
    "worker_restart": {},
}
"""The rules that may promise a step for a change of the table, each with what a trial of that change does. It is empty
where the figures of the suggestion say it."""
