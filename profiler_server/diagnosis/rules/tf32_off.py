"""Products of 32-bit floats run without the tensor cores that the device has for them."""

from __future__ import annotations

from profiler_server.diagnosis.limits import AMPERE, FULL_PRECISION_FRAC
from profiler_server.diagnosis.seen import predict_or
from profiler_server.diagnosis.what_if import shorten_kernels
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_share

_SAVED = 0.5


def _judge(case: Case) -> Finding | None:
    share = case.device.full_precision_frac
    if share is None or share < FULL_PRECISION_FRAC or case.device.cuda_generation < AMPERE:
        return None
    finding = Finding(
        title="Matrix products do not use the tensor cores",
        measured=f"{format_share(share)} of the kernels' time (collectives left out) multiplies 32-bit floats in full precision; this device has "
        "tensor cores for them (TF32).",
        threshold=f"At least {format_share(FULL_PRECISION_FRAC)} of the kernels' time, judged by their names.",
        advice="Allow TF32: the same range of numbers, 10 bits of mantissa in the products, sums in full. Check that your "
        "loss stays as it was. Autocast in bfloat16 gains more, and changes more.",
        change='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
        fix="TF32 on",
        evidence=(OPERATORS_PAGE,),
        what_if=shorten_kernels(case, share, _SAVED),
        gain_range=(0.4, 1.6),
    )
    return predict_or(case, finding, "kernels", "precision")


RULE = Rule("tf32_off", knob="precision", effort="flag", judge=_judge, muted_when_input_bound=True)
