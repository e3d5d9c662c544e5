"""Products of 32-bit floats run without the tensor cores that the device has for them."""

from __future__ import annotations

from profiler_server.diagnosis.case import OPERATORS_PAGE, Case, Finding, Rule, shorten_kernels
from profiler_server.format import format_share

_SHARE = 0.3
_AMPERE = 8
_KEPT = 0.5


def _judge(case: Case) -> Finding | None:
    share = case.full_precision_frac
    if share is None or share < _SHARE or case.cuda_generation < _AMPERE:
        return None
    return Finding(
        title="Matrix products do not use the tensor cores",
        measured=f"{format_share(share)} of the kernels' time (collectives left out) multiplies 32-bit floats in full precision; this device has "
        "tensor cores for them (TF32).",
        threshold=f"More than {format_share(_SHARE)} of the kernels' time, by their names.",
        advice="Allow TF32: the same range of numbers, 10 bits of mantissa in the products, sums in full. Check that your "
        "loss stays as it was. Autocast in bfloat16 gains more, and changes more.",
        change='torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
        fix="TF32 on",
        evidence=(OPERATORS_PAGE,),
        what_if=shorten_kernels(case, share * _KEPT),
        gain_range=(0.4, 1.6),
    )


RULE = Rule("tf32_off", knob="precision", effort="flag", judge=_judge, muted_when_input_bound=True)
