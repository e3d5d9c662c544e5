"""16-bit products with sizes that tensor cores cannot take in whole groups."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "misaligned_shapes")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Sizes of matrix products are no multiples of 8",
        measured=f"Products with odd sizes{say_examples(seen)} take {format_duration(seen.spent_ns)} of the step, "
        f"{format_share(seen.figures['share'])} of the time of all kernels.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Tensor cores take 16-bit numbers in groups of 8. Pad the vocabulary, the number of classes or of channels to the next "
        "multiple of 8, better of 64. How much that gains depends on the library: try it.",
        change="vocab_size = (vocab_size + 63) // 64 * 64",
        fix="padded sizes",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "kernels", seen.gain)


RULE = Rule("misaligned_shapes", knob="shapes", effort="code", judge=_judge, muted_when_input_bound=True)
