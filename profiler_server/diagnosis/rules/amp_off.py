"""Products of 32-bit floats on a device whose tensor cores only take 16-bit ones."""

from __future__ import annotations

from profiler_server.diagnosis.limits import FULL_PRECISION_FRAC, VOLTA
from profiler_server.diagnosis.seen import predict_or
from profiler_server.diagnosis.what_if import shorten_kernels
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_share

_SAVED = 0.5

_CHANGE = """scaler = torch.amp.GradScaler("cuda")

with torch.autocast("cuda", dtype=torch.float16):
    loss = loss_of(model(images), labels)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()"""


def _judge(case: Case) -> Finding | None:
    share = case.device.full_precision_frac
    if share is None or share < FULL_PRECISION_FRAC or case.device.cuda_generation != VOLTA:
        return None
    finding = Finding(
        title="Nothing runs in mixed precision",
        measured=f"{format_share(share)} of the kernels' time (collectives left out) multiplies 32-bit floats in full "
        "precision; the tensor cores of this device multiply 16-bit ones several times faster.",
        threshold=f"At least {format_share(FULL_PRECISION_FRAC)} of the kernels' time, judged by their names.",
        advice="Run forward and loss under autocast in float16 and scale the loss. Check that your loss stays as it was.",
        change=_CHANGE,
        fix="autocast in float16",
        evidence=(OPERATORS_PAGE,),
        what_if=shorten_kernels(case, share, _SAVED),
        gain_range=(0.4, 1.6),
    )
    return predict_or(case, finding, "kernels", "precision")


RULE = Rule("amp_off", knob="precision", effort="semantics", judge=_judge, muted_when_input_bound=True)
