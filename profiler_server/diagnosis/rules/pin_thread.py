"""The thread that pins memory is the limit: its input is full and its output is empty."""

from __future__ import annotations

from profiler_server.diagnosis.wording import DATA_PAGE, say_wait
from profiler_server.facts.case import Case, Finding, Rule


def _judge(case: Case) -> Finding | None:
    if case.loading.bottleneck.stage != "pin" or not case.loading.is_input_bound:
        return None
    return Finding(
        title="Pinning memory is slower than loading",
        measured=f"{say_wait(case)} {case.loading.bottleneck.reason}",
        threshold="The queue before the pin-memory thread holds batches, and the one after it lacks the next batch.",
        advice="Send fewer and larger tensors per batch, uint8 instead of float32, or pin only what is copied.",
        change="return torch.from_numpy(image), label  # uint8; convert on the device: images.float().div_(255)",
        fix="smaller batches to pin",
        evidence=(DATA_PAGE,),
        severity="medium",
    )


RULE = Rule("pin_thread", knob="pin", effort="code", judge=_judge)
