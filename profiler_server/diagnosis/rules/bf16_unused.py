"""Training on processors multiplies in float32, although this one multiplies bfloat16 faster (needs the probe)."""

from __future__ import annotations

from profiler_server.diagnosis.limits import BFLOAT16_FASTER, BFLOAT16_LINEAR_FRAC
from profiler_server.diagnosis.what_if import shorten_phases
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.machine import Products
from profiler_server.format import format_duration, format_share

_COMPUTED = ("forward", "backward")
_CHANGE = """with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = loss_of(model(inputs), targets)
loss.backward()"""


def _judge(case: Case) -> Finding | None:
    """Say it where the model's own products were faster in bfloat16, conversions included.

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
        change=_CHANGE,
        fix="autocast in bfloat16",
        evidence=(STEPS_PAGE,),
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


RULE = Rule("bf16_unused", knob="precision", effort="semantics", judge=_judge, muted_when_input_bound=True)
