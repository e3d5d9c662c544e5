"""The family of an operator, by its name: the `type` column of the table of operators.

The first matching pattern decides, so narrow patterns come first.
"""

from __future__ import annotations

import re

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("optimizer", r"optimizer\.|_fused_(adam|adamw|sgd|adagrad)|_foreach_|_amp_(update|foreach)|_fused_adam"),
    (
        "communication",
        r"c10d|nccl|rccl|gloo|mpi:|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_?$|barrier",
    ),
    ("communication", r"record_param_comms|distributeddataparallel\.|fsdp::|_c10d_functional|wait_tensor"),
    ("annotation", r"enumerate\(dataloader\)|profilerstep"),
    ("attention", r"attention|flash_attn|flash_fwd|flash_bwd|_sdp|fmha|xformers|mha_(fwd|bwd|varlen)"),
    ("convolution", r"conv(?!ert)|slow_conv|thnn_conv"),
    (
        "normalization",
        r"batch_?norm|layer_?norm|group_?norm|instance_?norm|rms_?norm|local_response_norm|nested_layer_norm",
    ),
    ("loss", r"loss|nll_|cross_entropy|kl_div|binary_cross_entropy|ctc"),
    ("pooling", r"pool"),
    ("embedding", r"embedding|fbgemm|jagged|bounds_check_indices"),
    ("matmul", r"\b(mm|bmm|addmm|addmv|mv|baddbmm|addbmm|matmul|linear|dot|vdot|einsum|_scaled_mm|_int_mm)(_\w*)?\b"),
    ("matmul", r"(mm|addmm|bmm|matmul|linear|mv|dot)(backward\d*|_backward|_out)?$|gemm|cutlass|lstm|gru\b|rnn"),
    (
        "activation",
        r"relu|gelu|silu|sigmoid|tanh|softmax|softplus|hardswish|mish|elu\b|elu_|glu|threshold|swish|prelu|activation",
    ),
    ("random", r"dropout|bernoulli|normal_|uniform|rand|multinomial|exponential_|philox"),
    (
        "indexing",
        r"index|gather|scatter|masked_(fill|select|scatter)|nonzero|where|topk|sort|searchsorted|unique|take|one_hot|tril|triu|roll",
    ),
    (
        "copy",
        r"copy|::to\b|::_to_|todevice|clone|contiguous|\bcat\b|::cat|stack|pin_memory|repeat|pad|lift|memcpy|permute_\w+d|flip",
    ),
    (
        "reduction",
        r"\b(sum|mean|max|min|amax|amin|norm|std|var|prod|argmax|argmin|any|all|cumsum|logsumexp|var_mean|aminmax|median|count_nonzero)\b",
    ),
    ("reduction", r"(sum|mean|norm|cumsum|logsumexp|argmax|argmin)(_\w*|backward\d*)?$|triton_(red|per)_"),
    (
        "memory",
        r"empty|zeros|ones|full\b|full_|zero_|fill_|set_|resize|new_|_like|view|reshape|expand|permute|transpose|::t\b|::t_\b|slice",
    ),
    (
        "memory",
        r"select|squeeze|unfold|narrow|split|chunk|unbind|as_strided|alias|detach|flatten|arange|item|_local_scalar|is_nonzero|storage",
    ),
    (
        "elementwise",
        r"\b(add|sub|rsub|mul|div|pow|exp|log|log1p|sqrt|rsqrt|neg|abs|clamp|clamp_min|clamp_max|eq|ne|lt|le|gt|ge|sin|cos"
        r"|bitwise_\w+|logical_\w+|addcmul|addcdiv|lerp|reciprocal|maximum|minimum|floor|ceil|round|sign|erf|isnan|isinf|fmod"
        r"|remainder|square|trunc|isfinite|nan_to_num)_?\b",
    ),
    ("elementwise", r"(add|sub|mul|div|pow|exp|log|sqrt|neg|abs|clamp\w*|sin|cos)backward\d*$|triton_poi_|elementwise"),
)
_COMPILED = tuple((family, re.compile(pattern, re.IGNORECASE)) for family, pattern in _PATTERNS)
_AUTOGRAD = re.compile(r"^autograd::|^torch::autograd::|AccumulateGrad|Backward\d*$|GradientEdge")


def find_family(name: str, annotation: bool = False) -> str:
    """Return the family of an operator (such as optimizer), by the operator's name.

    With `annotation`, the name is that of a user's annotation: the family is optimizer, communication, autograd or
    annotation. Autograd's wrapper of a backward operator ("autograd::engine::evaluate_function: MmBackward0") is of the
    family autograd: the operators that do the work are nested inside the wrapper.
    """
    if _AUTOGRAD.search(name):
        return "autograd"
    for family, pattern in _COMPILED:
        if annotation and family not in ("optimizer", "communication", "annotation"):
            continue
        if pattern.search(name):
            return family
    return "annotation" if annotation else "other"
