"""Which numbers are computed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from profiler_server.diagnosis.limits.device import (
    AMPERE,
    ARITHMETIC_FRAC,
    BFLOAT16_FASTER,
    BFLOAT16_LINEAR_FRAC,
    FLOAT64_FRAC,
    FLOAT64_SAVED_FRAC,
    FULL_PRECISION_FRAC,
    SUBNORMAL_FRAC,
    SUBNORMAL_SLOWER,
    VOLTA,
)
from profiler_server.diagnosis.what_if import predict_or, shorten_kernels, shorten_phases
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.machine import Products, Subnormals
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_count, format_duration, format_share

_AUTOCAST = """scaler = torch.amp.GradScaler("cuda")

with torch.autocast("cuda", dtype=torch.float16):
    loss = loss_of(model(images), labels)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()"""


def _judge_tf32_off(case: Case) -> Finding | None:
    """Products of 32-bit floats run without the tensor cores that the device has for them."""
    return _judge_kernels(case) if case.device.cuda_generation >= AMPERE else None


def _judge_amp_off(case: Case) -> Finding | None:
    """Products of 32-bit floats on a device whose tensor cores only take 16-bit ones."""
    found = _judge_kernels(case) if case.device.cuda_generation == VOLTA else None
    return found and replace(
        found,
        title="Nothing runs in mixed precision",
        measured=f"{_say_full_precision(case)}; the tensor cores of this device multiply 16-bit ones several times faster.",
        advice="Run forward and loss under autocast in float16 and scale the loss. Check that your loss stays as it was.",
        change=_AUTOCAST,
        fix="autocast in float16",
    )


def _judge_kernels(case: Case) -> Finding | None:
    """Judge full precision on a device that has tensor cores for 32-bit floats."""
    share = case.device.full_precision_frac
    if share is None or share < FULL_PRECISION_FRAC:
        return None
    finding = Finding(
        title="Matrix products do not use the tensor cores",
        measured=f"{_say_full_precision(case)}; this device has tensor cores for them (TF32).",
        threshold=f"At least {format_share(FULL_PRECISION_FRAC)} of the kernels' time, judged by their names.",
        advice="Allow TF32: the same range of numbers, 10 bits of mantissa in the products, sums in full. Check that your "
        "loss stays as it was. Autocast in bfloat16 gains more, and changes more.",
        change='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
        fix="TF32 on",
        evidence=(OPERATORS_PAGE,),
        what_if=shorten_kernels(case, share, 0.5),
        gain_range=(0.4, 1.6),
    )
    return predict_or(case, finding, "kernels", "precision")


def _say_full_precision(case: Case) -> str:
    share = format_share(case.device.full_precision_frac)
    return f"{share} of the kernels' time (collectives left out) multiplies 32-bit floats in full precision"


_COMPUTED = ("forward", "backward")
_AUTOCAST_ON_PROCESSORS = """with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = loss_of(model(inputs), targets)
loss.backward()"""


def _judge_bf16_unused(case: Case) -> Finding | None:
    """Training on processors multiplies in float32, although this one multiplies bfloat16 faster (needs the probe).

    Say it where the model's own products were faster in bfloat16, conversions included.

    Source: the probe. It times products with up to two of the model's largest weight matrices (2,048 a side at most, with 256
    rows). What bfloat16 saves of them is taken of half of forward and backward: not all of that is products.
    """
    products = case.products
    if products is None or products.is_autocast or case.device.is_used:
        return None
    if products.faster < BFLOAT16_FASTER or products.linear_frac < BFLOAT16_LINEAR_FRAC:
        return None
    return Finding(
        title="Products run in float32 on a processor that is faster in bfloat16",
        measured=f"{_describe(products)}; {format_share(products.linear_frac)} of the parameters are in matrices. Forward and "
        f"backward take {format_share(case.steps.share(*_COMPUTED))} of the {case.steps.noun}.",
        threshold=f"At least {BFLOAT16_FASTER:g} times as fast with the conversion included, at least "
        f"{format_share(BFLOAT16_LINEAR_FRAC)} of the parameters in matrices, and no autocast.",
        advice="Run forward and loss under autocast in bfloat16; parameters and their update stay in float32, and no loss scaling "
        "is needed. Check that your loss stays as it was.",
        change=_AUTOCAST_ON_PROCESSORS,
        fix="autocast in bfloat16",
        assumption="half of forward and backward is products of matrices",
        what_if=shorten_phases(case, _COMPUTED, 0.5 * (1.0 - 1.0 / products.faster)),
        gain_range=(0.4, 1.8),
    )


def _describe(products: Products) -> str:
    shapes = " and ".join(f"{rows} × {columns}" for rows, columns in products.shapes)
    return (
        f"Products with the model's largest matrices ({shapes}) took {format_duration(products.float32_ns)} in float32 and "
        f"{format_duration(products.bfloat16_ns)} in bfloat16 ({products.instructions}), as the probe measured"
    )


def _judge_float64(case: Case) -> Finding | None:
    """Parameters are trained in double precision: twice the bytes, half the vector width, and on most GPUs far less."""
    double, whole = _count_parameters(case)
    if not whole or double < FLOAT64_FRAC * whole:
        return None
    spent = sum(case.steps.phases_ns[name] for name in COMPUTING)
    slow = case.steps.slow_convolutions
    saved = FLOAT64_SAVED_FRAC + (slow.saved_frac - FLOAT64_SAVED_FRAC) * slow.share_frac
    assumed = "operators in float32 took half as long"
    return Finding(
        title="The model is trained in float64",
        measured=f"{format_count(double)} of {format_count(whole)} parameters are float64; forward, backward and update take "
        f"{format_duration(spent)}, {format_share(case.steps.share(*COMPUTING))} of the step.",
        threshold=f"At least {format_share(FLOAT64_FRAC)} of the trained parameters are float64.",
        advice="NumPy makes float64 unless told otherwise, and a model that gets such data, or torch.set_default_dtype, "
        "follows. float32 halves the bytes and doubles what a vector instruction does; it is enough for training.",
        change="model = model.float()\ndata = torch.as_tensor(array, dtype=torch.float32)",
        fix="float32",
        assumption=f"{assumed}, and convolutions, which no library computes in float64, {format_share(1.0 - slow.saved_frac)} as long"
        if slow.share_frac
        else assumed,
        what_if=shorten_phases(case, COMPUTING, saved),
        tier="A",
        gain_range=(0.5, 1.2),
    )


def _count_parameters(case: Case) -> tuple[int, int]:
    """Return how many trained parameters are float64, and how many there are; 0, 0 where that was not recorded."""
    double = whole = 0
    optimizers = case.facts.get("optimizers")
    for entry in optimizers if isinstance(optimizers, list) else ():
        dtypes = entry.get("dtypes") if isinstance(entry, Mapping) else None
        for name, count in dtypes.items() if isinstance(dtypes, Mapping) else ():
            if isinstance(count, int) and not isinstance(count, bool):
                whole += max(count, 0)
                double += max(count, 0) if name == "float64" else 0
    return double, whole


_PHASES_OF = {
    "parameters": ("forward", "backward", "optimizer"),
    "gradients": ("backward", "optimizer"),
    "states": ("optimizer",),
}
"""What computes with each kind of number."""
_WORDS = {"parameters": "parameters", "gradients": "gradients", "states": "states of the optimizer"}


def _judge_subnormals(case: Case) -> Finding | None:
    """Numbers so close to zero that the processor computes with them many times more slowly (needs the probe).

    Say it where multiplying copies of them was slow.

    Source: the probe. It counts the subnormal among up to 327,680 numbers of each kind, and multiplies them by 0.75, as they
    are and flushed to zero. What that saves of them is taken of three quarters of the phases that use such numbers.
    """
    slow = [group for group in case.subnormals if _is_slow(group)]
    if case.device.is_used or not slow:
        return None
    phases = max((_PHASES_OF[group.group] for group in slow), key=len)
    plain_ns, flushed_ns = sum(group.plain_ns for group in slow), sum(group.flushed_ns for group in slow)
    saved_frac = ARITHMETIC_FRAC * (1.0 - flushed_ns / plain_ns)
    found = "; ".join(
        f"{format_share(group.share_frac)} of the {_WORDS[group.group]} are subnormal "
        f"({format_count(group.subnormal)} of {format_count(group.count)} looked at)"
        for group in slow
    )
    return Finding(
        title="The processor computes with subnormal numbers",
        measured=f"{found}. Multiplying copies of them took {plain_ns / flushed_ns:.1f} times as long as with those flushed to "
        "zero, as the probe measured between two steps.",
        threshold=f"At least {format_share(SUBNORMAL_FRAC)} subnormal numbers, and a multiplication that takes at least "
        f"{SUBNORMAL_SLOWER:g} times as long.",
        advice="float32 numbers below 1.2e-38 have no normal form, and most processors handle them by a slow path. Flush them to "
        "zero: call it before the first operator, and in each thread of yours that computes. It changes results by less than "
        "1.2e-38 per number. If much of the model is that small, look why: weight decay, a dead layer or a loss scale.",
        change="torch.set_flush_denormal(True)",
        fix="subnormals flushed to zero",
        assumption="three quarters of the time of these phases is arithmetic on such numbers",
        what_if=shorten_phases(case, phases, saved_frac),
        # Products of matrices may be slower still than the single multiplications that were timed.
        gain_range=(0.25, 1.0 / saved_frac),
    )


def _is_slow(group: Subnormals) -> bool:
    return group.share_frac >= SUBNORMAL_FRAC and group.slower >= SUBNORMAL_SLOWER


RULES = (
    Rule("tf32_off", knob="precision", effort="flag", judge=_judge_tf32_off, muted_when_input_bound=True),
    Rule("amp_off", knob="precision", effort="semantics", judge=_judge_amp_off, muted_when_input_bound=True),
    Rule("bf16_unused", knob="precision", effort="semantics", judge=_judge_bf16_unused, muted_when_input_bound=True),
    Rule("float64", knob="precision", effort="code", judge=_judge_float64, muted_when_input_bound=True),
    Rule("subnormals", knob="subnormals", effort="flag", judge=_judge_subnormals, muted_when_input_bound=True),
)
