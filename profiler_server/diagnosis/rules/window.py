"""What a recorded window shows of the device, one row each: without it the replayed step is shorter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from profiler_server.diagnosis.limits.facts import MIN_GAIN_FRAC
from profiler_server.diagnosis.what_if import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Effort, Finding, Rule
from profiler_server.facts.machine import Sighting
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share


@dataclass(frozen=True)
class _Row:
    """One sighting and what is said of it. `measured` has fields for its figures per step; `part` is what is shortened."""

    id: str
    about: str
    knob: str
    effort: Effort
    part: str
    title: str
    measured: str
    advice: str
    change: str
    fix: str
    sighting: str = ""


_ROWS = (
    _Row(
        "alloc_retries",
        about="The allocator asks the driver for memory while steps run.",
        knob="allocator",
        effort="flag",
        part="allocator",
        sighting="allocator_calls",
        title="Memory is taken from the driver in each step",
        measured="{count:.1f} calls per step to take or give back device memory{examples}, {freed:.1f} of them give it back "
        "and wait for the device; they take {spent}.",
        advice="The cache of the allocator should serve steady steps alone. It does not when memory is nearly full, or when sizes change "
        "from step to step: use a smaller batch, pad to few sizes, or let segments grow.",
        change="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        fix="an allocator that needs no driver",
    ),
    _Row(
        "built_on_cpu",
        about="Tensors made on the host and then copied, which the device could make.",
        knob="built",
        effort="code",
        part="copies",
        title="Tensors are made on the host and copied",
        measured="{count:.1f} times per step a tensor is made on the host{examples} and copied to the device at once.",
        advice="Give the device to the function that makes the tensor: neither the copy nor its wait is needed then.",
        change="torch.arange(n, device=x.device)  # was: torch.arange(n).to(x.device)",
        fix="tensors made on the device",
    ),
    _Row(
        "cast_before_copy",
        about="Batches are made wider on the host before they are copied.",
        knob="cast",
        effort="code",
        part="copies",
        title="Batches are cast before they are copied",
        measured="{count:.1f} copies per step are of tensors that the host made wider right before{examples}; casting and "
        "copying take {spent}.",
        advice="Copy the bytes as they are and cast on the device: the copy is smaller, and the device casts in no time.",
        change="images = images.to(device, non_blocking=True).float().div_(255)  # was: images.float().div_(255).to(device)",
        fix="casting on the device",
    ),
    _Row(
        "channels_last",
        about="Convolutions turn their images into another layout and back.",
        knob="layout",
        effort="code",
        part="kernels",
        sighting="layout_copies",
        title="Convolutions change the layout of their images",
        measured="Kernels that only turn one layout into the other take {spent} of the step, "
        "{share} of the time of all kernels.",
        advice="Keep model and images in channels_last: then the layout is changed once, and not around each convolution.",
        change="model = model.to(memory_format=torch.channels_last)\nimages = images.to(memory_format=torch.channels_last)",
        fix="channels_last",
    ),
    _Row(
        "empty_cache_in_loop",
        about="`torch.cuda.empty_cache()` in the training loop.",
        knob="empty_cache",
        effort="code",
        part="allocator",
        sighting="emptied_cache",
        title="The cache of the allocator is emptied in the loop",
        measured="{count:.1f} times per step memory is given back to the driver outside of operators, which takes {spent}; "
        "the memory has to be asked for again.",
        advice="Remove torch.cuda.empty_cache() from the loop: it frees nothing that the next step would not take again.",
        change="# torch.cuda.empty_cache()",
        fix="no empty_cache()",
    ),
    _Row(
        "explicit_synchronize",
        about="`torch.cuda.synchronize()` in the training loop.",
        knob="explicit_sync",
        effort="code",
        part="waits",
        title="The loop synchronises with the device",
        measured="{count:.1f} times per step the loop calls a synchronisation of its own{examples}; the device then idles "
        "{idle_ns} of the step until new work arrives.",
        advice="Remove the calls, or keep them for the steps that are timed: torch.cuda.Event measures without stopping the host.",
        change="# torch.cuda.synchronize()  # only around steps that are timed",
        fix="no explicit synchronisation",
    ),
    _Row(
        "large_d2h",
        about="Large results are brought to the host in each step.",
        knob="results",
        effort="code",
        part="copies",
        title="Large results are copied to the host in each step",
        measured="{count:.1f} copies per step of 1 MiB and more, {size_bytes} in all{examples}, "
        "take {spent}, and the host waits for them.",
        advice="Compute what you need of them on the device (a mean, a top-k, a mask) and copy that; or copy into pinned memory "
        "with non_blocking=True and read it a step later.",
        change='scores = logits.argmax(-1).to("cpu", non_blocking=True)  # was: logits.cpu().argmax(-1)',
        fix="no large copies to the host",
    ),
    _Row(
        "misaligned_shapes",
        about="16-bit products with sizes that tensor cores cannot take in whole groups.",
        knob="shapes",
        effort="code",
        part="kernels",
        title="Sizes of matrix products are no multiples of 8",
        measured="Products with odd sizes{examples} take {spent} of the step, {share} of the time of all kernels.",
        advice="Tensor cores take 16-bit numbers in groups of 8. Pad the vocabulary, the number of classes or of channels to the next "
        "multiple of 8, better of 64. How much that gains depends on the library: try it.",
        change="vocab_size = (vocab_size + 63) // 64 * 64",
        fix="padded sizes",
    ),
    _Row(
        "per_parameter_loops",
        about="Python loops over parameters outside of the update: norms, averages of weights, zeroing.",
        knob="loops",
        effort="code",
        part="loops",
        title="A loop handles parameters one by one",
        measured="{count:.0f} small operators per step in loops over tensors{examples}, outside of the update; they take "
        "{spent}.",
        advice="Use the form for many tensors: clip_grad_norm_(…, foreach=True), torch._foreach_lerp_ or AveragedModel for averages of "
        "weights, zero_grad(set_to_none=True) for gradients.",
        change="torch._foreach_lerp_(averages, parameters, 1 - decay)  # was: a loop with one call per parameter",
        fix="one call for all parameters",
    ),
    _Row(
        "sdpa_unused",
        about="Attention made of single operators, where one kernel could do it.",
        knob="attention",
        effort="code",
        part="kernels",
        sighting="attention_by_hand",
        title="Attention is computed operator by operator",
        measured="{count:.0f} times per step a softmax stands between two products{examples}; what lies between the products takes "
        "{spent}, {share} of the time of all kernels.",
        advice="Use torch.nn.functional.scaled_dot_product_attention (in Hugging Face models attn_implementation='sdpa'): one kernel that "
        "neither writes nor reads the matrix of scores. It does not return attention weights.",
        change="out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)",
        fix="scaled_dot_product_attention",
    ),
    _Row(
        "small_copies",
        about="Many small copies to the device in each step.",
        knob="copy_count",
        effort="code",
        part="copies",
        title="Many small copies to the device",
        measured="{count:.0f} copies per step of at most 64 KiB, {size_bytes} in all{examples}; "
        "they run for {spent}, and each has a call of its own.",
        advice="Put small tensors together on the host and copy them once, or make them on the device. Numbers that go into an "
        "operator need no tensor at all.",
        change="packed = torch.cat([t.flatten() for t in small]).pin_memory().to(device, non_blocking=True)\n"
        "parts = packed.split([t.numel() for t in small])",
        fix="one copy for all",
    ),
    _Row(
        "sync_points",
        about="Operators that make the host wait for the device: `.item()`, `.cpu()`, a tensor in an `if`.",
        knob="sync",
        effort="code",
        part="waits",
        title="The host waits for results of the device",
        measured="{count:.1f} times per step the host waits for a value{examples}, {spent} in all; "
        "the device then idles {idle_ns} of the step until new work arrives.",
        advice="The wait itself costs nothing while the device works; what counts is that the device has nothing to do afterwards. "
        "Keep such values on the device, add them up there, and read them every hundred steps; copy results with "
        "non_blocking=True; use torch.where in place of an if on a tensor and of indexing by a mask.",
        change="total += loss.detach()  # was: total += loss.item()\nif step % 100 == 0:\n    print(total.item() / 100)\n    total.zero_()",
        fix="no waiting inside of the step",
    ),
    _Row(
        "unfused_pointwise",
        about="Chains of elementwise kernels that a compiler would join.",
        knob="launch",
        effort="flag",
        part="kernels",
        title="Elementwise kernels run one by one",
        measured="{count:.0f} elementwise kernels per step follow each other in chains of three and more{examples}; they take "
        "{spent}, {share} of the time of all kernels.",
        advice="Each reads and writes all of its memory. torch.compile joins such chains into one kernel, without CUDA graphs too; "
        "or use the fused form of the operator (fused norms, activations and losses).",
        change="model = torch.compile(model)",
        fix="torch.compile",
    ),
)
_FORMATS = {"share": format_share, "size_bytes": format_bytes, "idle_ns": format_duration}


def _judge(row: _Row, case: Case) -> Finding | Abstention | None:
    seen = look_for(case, row.id, row.sighting)
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title=row.title,
        measured=_measure(row, seen),
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice=row.advice,
        change=row.change,
        fix=row.fix,
        evidence=(TIMELINE,),
    )
    return predict(case, finding, row.part, seen.gain)


def _measure(row: _Row, seen: Sighting) -> str:
    figures = {name: _FORMATS[name](value) if name in _FORMATS else value for name, value in seen.figures.items()}
    spent = format_duration(seen.spent_ns)
    return row.measured.format(count=seen.count, spent=spent, examples=say_examples(seen), **figures)


RULES = tuple(
    Rule(row.id, row.knob, row.effort, partial(_judge, row), muted_when_input_bound=True, about=row.about)
    for row in _ROWS
)
