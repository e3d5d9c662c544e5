"""cuDNN picks its convolution algorithms by rule of thumb, not by trying them."""

from __future__ import annotations

from profiler_server.diagnosis.limits import CONVOLUTION_FRAC
from profiler_server.diagnosis.seen import look_for, say_examples
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | Abstention | None:
    if all(entry.kind != "cuda" for entry in case.device.entries):
        return None
    seen = look_for(case, "cudnn_benchmark_off", "convolutions")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.figures["share"] < CONVOLUTION_FRAC:
        return None
    tries = case.facts.get("cudnn_benchmark")
    if not isinstance(tries, bool):
        return Abstention(
            "cudnn_benchmark_off", "whether torch.backends.cudnn.benchmark was on", "Record with Stepscope."
        )
    if tries:
        return None
    share = format_share(seen.figures["share"])
    return Finding(
        title="cuDNN does not try its algorithms",
        measured=f"Convolutions take {share} of the time of all kernels{say_examples(seen)}; torch.backends.cudnn.benchmark is off.",
        threshold=f"At least {format_share(CONVOLUTION_FRAC)} of the kernels' time in convolutions, with the setting off.",
        advice="If the images have few different sizes, let cuDNN time its algorithms once for each. With sizes that change "
        "all the time it would time them all the time: leave it off then.",
        change="torch.backends.cudnn.benchmark = True",
        fix="cudnn.benchmark",
        evidence=(OPERATORS_PAGE,),
    )


RULE = Rule("cudnn_benchmark_off", knob="cudnn", effort="flag", judge=_judge, muted_when_input_bound=True)
