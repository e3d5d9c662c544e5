"""Convolutions: 2 · (elements of the output) · (input channels of a group) · (elements of the kernel), as FlopCounterMode.

Counted: direct convolution, a multiplication and an addition per tap. Ignored: the bias, and what Winograd or FFT save.
A backward costs that once for the gradient of the input and once for that of the weight, as far as they are asked for.
Traces from before PyTorch 2.0 do not hold strides and paddings, so nothing is known of a forward in them.
"""

from __future__ import annotations

import math

from collector.traces.call import Call, Formula, Shape, Work


def _convolve(call: Call, stride: int, padding: int, dilation: int | None) -> Work | None:
    """Return a forward of (input, weight); the arguments say at which places stride, padding and dilation stand."""
    data, weight = call.shape(0), call.shape(1)
    steps, pads = call.integers(stride), call.integers(padding)
    spread = (1,) if dilation is None else call.integers(dilation)
    if data is None or weight is None or steps is None or pads is None or spread is None:
        return None
    space = len(weight) - 2
    if space < 1 or len(data) not in (space + 1, space + 2):
        return None
    edges = zip(data[-space:], weight[2:], _fill(steps, space), _fill(pads, space), _fill(spread, space), strict=True)
    sizes = [_find_size(*edge) for edge in edges]
    written = math.prod(data[:-space][:-1]) * weight[0] * math.prod(sizes)
    return _finish(call, written, written, weight)


def _find_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return max((size + 2 * padding - dilation * (kernel - 1) - 1) // max(stride, 1) + 1, 0)


def _convolve_transposed(call: Call) -> Work | None:
    """Return a transposed aten::convolution: every element of the input meets every tap of (in, out / groups, …)."""
    data, weight = call.shape(0), call.shape(1)
    given = [call.integers(place) for place in (3, 4, 7, 5, 8)]
    if data is None or weight is None or len(weight) < 3 or any(value is None for value in given):
        return None
    space = len(weight) - 2
    steps, pads, extra, spread, groups = (_fill(value or (), space) for value in given)
    sizes = [
        (size - 1) * s - 2 * p + d * (kernel - 1) + o + 1
        for size, kernel, s, p, o, d in zip(data[-space:], weight[2:], steps, pads, extra, spread, strict=True)
    ]
    written = math.prod(data[:-space][:-1]) * weight[1] * groups[0] * math.prod(sizes)
    return _finish(call, math.prod(data), max(written, 0), weight)


def _fill(values: Shape, length: int) -> Shape:
    """Return one value per dimension: a single one holds for all."""
    return values if len(values) == length else (values[:1] or (0,)) * length


def _finish(call: Call, taps_over: int, written: int, weight: Shape) -> Work:
    read = call.tensor_bytes(0) + call.tensor_bytes(1) + call.tensor_bytes(2)
    return Work(2.0 * taps_over * math.prod(weight[1:]), read + written * call.element_bytes(0))


def _forward(call: Call) -> Work | None:
    """Return aten::convolution and _convolution: (input, weight, bias, stride, padding, dilation, transposed, …)."""
    if call.flag(6):
        return _convolve_transposed(call)
    return _convolve(call, 3, 4, 5)


def _backward(call: Call) -> Work | None:
    """Return aten::convolution_backward: (grad_output, input, weight, …, transposed at 7, output_mask at 10)."""
    gradient, data, weight = call.shape(0), call.shape(1), call.shape(2)
    if gradient is None or data is None or weight is None or len(weight) < 3:
        return None
    wanted = (call.flags(10) or (True, True))[:2]
    over = math.prod(data if call.flag(7) else gradient)
    written = sum(call.tensor_bytes(1 + place) for place, asked in enumerate(wanted) if asked)
    read = sum(call.tensor_bytes(place) for place in range(3))
    return Work(2.0 * sum(wanted) * over * math.prod(weight[1:]), read + written)


def _backward_input(call: Call) -> Work | None:
    """Return the gradient of the input alone, of old traces: (input size, grad_output, weight, …).

    The gradient's batch and channels are known; the input's space is not, so the bytes written are those of grad_output.
    """
    gradient, weight = call.shape(1), call.shape(2)
    if gradient is None or weight is None or len(weight) < 3:
        return None
    moved = 2 * call.tensor_bytes(1) + call.tensor_bytes(2)
    return Work(2.0 * math.prod(gradient) * math.prod(weight[1:]), moved)


def _at(stride: int, padding: int, dilation: int | None) -> Formula:
    return lambda call: _convolve(call, stride, padding, dilation)


FORMULAS: dict[str, Formula] = {
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
