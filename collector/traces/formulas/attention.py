"""Scaled dot-product attention: two products forward, five backward, as PyTorch's FlopCounterMode counts them.

Counted: 2·B·H·Sq·Skv·(Dqk + Dv) forward; backward recomputes the scores and has four gradients of products, so
2·B·H·Sq·Skv·(3·Dqk + 2·Dv). A causal mask over a square leaves (S + 1) / 2S of it, because kernels skip what is masked
(FlopCounterMode does not know masks). Ignored: softmax, dropout, scale. Least bytes: query, key, value (and, backward,
output and gradient) read once, results written once; the scores never leave the chip.
"""

from __future__ import annotations

import math

from collector.traces.call import Call, Formula, Work


def _attend(first: int, causal: int, heads_before_length: bool, backward: bool) -> Formula:
    """Make the formula of query, key and value from argument `first` on; `causal` is where is_causal stands."""

    def estimate(call: Call) -> Work | None:
        query, key, value = (call.shape(first + place) for place in range(3))
        if query is None or key is None or value is None or not len(query) == len(key) == len(value) == 4:
            return None
        length, head = (2, 1) if heads_before_length else (1, 2)
        products = 3 * query[3] + 2 * value[3] if backward else query[3] + value[3]
        scores = query[0] * query[head] * query[length] * key[length]
        part = (
            (key[length] + 1) / (2 * key[length])
            if _is_square_causal(call, causal, query[length], key[length])
            else 1.0
        )
        given = sum(call.tensor_bytes(first + place) for place in range(3))
        result = math.prod(query[:3]) * value[3] * call.element_bytes(first)
        return Work(2.0 * scores * products * part, 2 * given + 2 * result if backward else given + result)

    return estimate


def _is_square_causal(call: Call, causal: int, queries: int, keys: int) -> bool:
    return bool(call.flag(causal)) and queries == keys > 0


FORMULAS: dict[str, Formula] = {
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
}
