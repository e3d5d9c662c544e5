"""Matrix products, attention and convolutions, counted as in PyTorch's FlopCounterMode.

Matrix products: 2·n·m·p operations for (n, m) x (m, p). Counted: a multiplication and an addition per element of the
inner sum. Ignored: the bias addition, alpha and beta.

Scaled dot-product attention: two products forward, five backward. Counted: 2·B·H·Sq·Skv·(Dqk + Dv) forward; backward
recomputes the scores and has four gradients of products, so 2·B·H·Sq·Skv·(3·Dqk + 2·Dv). A causal mask over a square
leaves the fraction (S + 1) / 2S, because kernels skip masked elements (FlopCounterMode ignores masks). Ignored:
softmax, dropout, scale. Least bytes: query, key, value (and, backward, output and gradient) read once, results written
once; the scores never leave the chip.

Convolutions: 2 · (elements of the output) · (input channels of a group) · (elements of the kernel). Counted: direct
convolution, a multiplication and an addition per tap. Ignored: the bias, and savings by Winograd or FFT. A backward
costs the same for the gradient of the input, and the same again for the gradient of the weight, if they are requested.
Traces from before PyTorch 2.0 lack strides and paddings, so their forwards have no estimate.
"""

from __future__ import annotations

import math
from functools import partial

from collector.traces.call import Call, Formula, Shape, Work, broadcast


def _multiply(call: Call, first: int, second: int, added: int | None = None, transposed: bool = False) -> Work | None:
    """Return the work of torch.matmul of the arguments at `first` and `second`, with any batch dimensions.

    With `transposed`, the second argument is transposed first. The tensor at `added`, if any, is read once.
    """
    a, b = call.shape(first), call.shape(second)
    result = _find_product(a, b[::-1] if transposed else b) if a and b else None
    if not a or result is None:
        return None
    read = call.tensor_bytes(first) + call.tensor_bytes(second) + (0 if added is None else call.tensor_bytes(added))
    return Work(2.0 * math.prod(result) * a[-1], read + math.prod(result) * call.element_bytes(first))


def _find_product(a: Shape, b: Shape) -> Shape | None:
    """Return the shape of the matrix product of two tensors that are not scalars; None if their shapes do not fit."""
    inner = b[0] if len(b) == 1 else b[-2]
    batch = broadcast([a[:-2], b[:-2]])
    if a[-1] != inner or batch is None:
        return None
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _einsum(call: Call) -> Work | None:
    """Return the work of einsum over two tensors: 2 times the product of the sizes of all indices in the equation that
    the trace records.

    None for an equation with an ellipsis, a repeated index in one operand, or another number of operands.
    """
    operands = call.list_of(1)
    terms, _, output = (call.values[0] if call.values else "").replace(" ", "").partition("->")
    inputs = terms.split(",")
    if not output or len(inputs) != 2 or len(operands) != 2 or "." in terms:
        return None
    sizes: dict[str, int] = {}
    for term, shape in zip(inputs, operands, strict=True):
        if len(term) != len(shape) or len(set(term)) != len(term):
            return None
        sizes.update(zip(term, shape, strict=True))
    if any(index not in sizes for index in output):
        return None
    elements = sum(math.prod(shape) for shape in operands) + math.prod(sizes[index] for index in output)
    return Work(2.0 * math.prod(sizes.values()), elements * call.element_bytes(1))


def _attend(first: int, causal: int, heads_before_length: bool, backward: bool) -> Formula:
    """Return the formula of attention, forward or `backward`. Arguments `first` to `first` + 2 are query, key and
    value, with the dimensions (batch, heads, length, width), or (batch, length, heads, width) without
    `heads_before_length`. Argument `causal` is is_causal.
    """

    def estimate(call: Call) -> Work | None:
        query, key, value = (call.shape(first + place) for place in range(3))
        if query is None or key is None or value is None or not len(query) == len(key) == len(value) == 4:
            return None
        length, head = (2, 1) if heads_before_length else (1, 2)
        products = 3 * query[3] + 2 * value[3] if backward else query[3] + value[3]
        scores = query[0] * query[head] * query[length] * key[length]
        is_causal = call.flag(causal) and query[length] == key[length] > 0
        part = (key[length] + 1) / (2 * key[length]) if is_causal else 1.0
        given = sum(call.tensor_bytes(first + place) for place in range(3))
        result = math.prod(query[:3]) * value[3] * call.element_bytes(first)
        return Work(2.0 * scores * products * part, 2 * given + 2 * result if backward else given + result)

    return estimate


def _convolve(call: Call, stride: int, padding: int, dilation: int | None) -> Work | None:
    """Return the work of a convolution's forward, called with (input, weight). `stride`, `padding` and `dilation` are
    positions of arguments; with `dilation` None, the dilation is 1.
    """
    data, weight = call.shape(0), call.shape(1)
    steps, pads = call.integers(stride), call.integers(padding)
    spread = (1,) if dilation is None else call.integers(dilation)
    if data is None or weight is None or steps is None or pads is None or spread is None:
        return None
    space = len(weight) - 2
    if space < 1 or len(data) not in (space + 1, space + 2):
        return None
    edges = zip(data[-space:], weight[2:], *(_repeat(given, space) for given in (steps, pads, spread)), strict=True)
    sizes = [max((size + 2 * p - d * (kernel - 1) - 1) // max(s, 1) + 1, 0) for size, kernel, s, p, d in edges]
    written = math.prod(data[:-space][:-1]) * weight[0] * math.prod(sizes)
    return _finish(call, written, written, weight)


def _convolve_transposed(call: Call) -> Work | None:
    """Return the work of a transposed convolution: every input element times every element of the kernel."""
    data, weight = call.shape(0), call.shape(1)
    given = [call.integers(place) for place in (3, 4, 7, 5, 8)]
    if data is None or weight is None or len(weight) < 3 or any(value is None for value in given):
        return None
    space = len(weight) - 2
    steps, pads, extra, spread, groups = (_repeat(value or (), space) for value in given)
    sizes = [
        (size - 1) * s - 2 * p + d * (kernel - 1) + o + 1
        for size, kernel, s, p, o, d in zip(data[-space:], weight[2:], steps, pads, extra, spread, strict=True)
    ]
    written = math.prod(data[:-space][:-1]) * weight[1] * groups[0] * math.prod(sizes)
    return _finish(call, math.prod(data), max(written, 0), weight)


def _repeat(values: Shape, length: int) -> Shape:
    """Return `values` if there are `length` of them, else its first value repeated `length` times."""
    return values if len(values) == length else (values[:1] or (0,)) * length


def _finish(call: Call, taps_over: int, written: int, weight: Shape) -> Work:
    read = call.tensor_bytes(0) + call.tensor_bytes(1) + call.tensor_bytes(2)
    return Work(2.0 * taps_over * math.prod(weight[1:]), read + written * call.element_bytes(0))


def _forward(call: Call) -> Work | None:
    """Return the work of aten::convolution or _convolution.

    The call's arguments are (input, weight, bias, stride, padding, dilation, transposed, …).
    """
    if call.flag(6):
        return _convolve_transposed(call)
    return _convolve(call, 3, 4, 5)


def _backward(call: Call) -> Work | None:
    """Return the work of aten::convolution_backward: (grad_output, input, weight, …, 7: transposed, 10: output_mask)."""
    gradient, data, weight = call.shape(0), call.shape(1), call.shape(2)
    if gradient is None or data is None or weight is None or len(weight) < 3:
        return None
    wanted = (call.flags(10) or (True, True))[:2]
    over = math.prod(data if call.flag(7) else gradient)
    written = sum(call.tensor_bytes(1 + place) for place, asked in enumerate(wanted) if asked)
    read = sum(call.tensor_bytes(place) for place in range(3))
    return Work(2.0 * sum(wanted) * over * math.prod(weight[1:]), read + written)


def _backward_input(call: Call) -> Work | None:
    """Return the work of the operator of old traces that computes only the gradient of the input. Its arguments are
    (input size, grad_output, weight, …).

    The spatial size of the input is unknown, so the bytes of grad_output are used as the bytes written.
    """
    gradient, weight = call.shape(1), call.shape(2)
    if gradient is None or weight is None or len(weight) < 3:
        return None
    moved = 2 * call.tensor_bytes(1) + call.tensor_bytes(2)
    return Work(2.0 * math.prod(gradient) * math.prod(weight[1:]), moved)


def _at(stride: int, padding: int, dilation: int | None) -> Formula:
    return partial(_convolve, stride=stride, padding=padding, dilation=dilation)


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        ("mm", "bmm", "mv", "dot", "vdot", "matmul", "_scaled_mm", "_int_mm"), partial(_multiply, first=0, second=1)
    ),
    **dict.fromkeys(
        ("addmm", "addmm_", "addmv", "addmv_", "baddbmm", "baddbmm_", "_addmm_activation"),
        partial(_multiply, first=1, second=2, added=0),
    ),
    # x·Wᵀ for x (…, in) and W (out, in)
    "linear": partial(_multiply, first=0, second=1, added=2, transposed=True),
    "einsum": _einsum,
    "scaled_dot_product_attention": _attend(0, 5, True, False),
    "_scaled_dot_product_flash_attention": _attend(0, 4, True, False),
    "_scaled_dot_product_flash_attention_for_cpu": _attend(0, 4, True, False),
    "_scaled_dot_product_efficient_attention": _attend(0, 6, True, False),
    "_scaled_dot_product_cudnn_attention": _attend(0, 6, True, False),
    "_flash_attention_forward": _attend(0, 8, False, False),
    "_efficient_attention_forward": _attend(0, 99, False, False),
    "_scaled_dot_product_flash_attention_backward": _attend(1, 11, True, True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attend(1, 7, True, True),
    "_scaled_dot_product_efficient_attention_backward": _attend(1, 11, True, True),
    "_scaled_dot_product_cudnn_attention_backward": _attend(1, 14, True, True),
    "_flash_attention_backward": _attend(1, 11, False, True),
    "_efficient_attention_backward": _attend(1, 99, False, True),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _at(3, 4, 5)),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _forward),
    "cudnn_convolution": _at(3, 2, 4),
    "cudnn_convolution_relu": _at(3, 4, 5),
    **dict.fromkeys(("mkldnn_convolution", "miopen_convolution", "miopen_depthwise_convolution"), _at(4, 3, 5)),
    "_conv_depthwise2d": _at(4, 5, 6),
    **dict.fromkeys(("thnn_conv2d", "_slow_conv2d_forward"), _at(4, 5, None)),
    "convolution_backward": _backward,
    "cudnn_convolution_backward_input": _backward_input,
}
