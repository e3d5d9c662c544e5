"""Attention made of single operators, where one kernel could do it."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "sdpa_unused", "attention_by_hand")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Attention is computed operator by operator",
        measured=f"{seen.count:.0f} times per step a softmax stands between two products{say_examples(seen)}; what lies between the products takes "
        f"{format_duration(seen.spent_ns)}, {format_share(seen.figures['share'])} of the time of all kernels.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Use torch.nn.functional.scaled_dot_product_attention (in Hugging Face models attn_implementation='sdpa'): one kernel that "
        "neither writes nor reads the matrix of scores. It does not return attention weights.",
        change="out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)",
        fix="scaled_dot_product_attention",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "kernels", seen.gain)


RULE = Rule("sdpa_unused", knob="attention", effort="code", judge=_judge, muted_when_input_bound=True)
