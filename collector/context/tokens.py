"""Count the tokens of a batch that are no padding, where its tensors have the names that frameworks agree on.

A mask on a processor is read at once. Of one on a GPU, a sum over each row is launched there, and read in a later step
on a stream of its own once an event shows that it is there: the training thread waits for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collector.context.numbers import view_numbers

_REAL = ("attention_mask", "input_mask")
"""Masks of batch × time whose numbers other than 0 are tokens."""
_FILLED = ("src_key_padding_mask", "key_padding_mask")
"""Masks of batch × time that are true where a row is filled up, as in torch.nn.Transformer."""
_TOKENS = ("input_ids", "decoder_input_ids", "tokens")
_LABELS = ("labels", "target_ids")
_PACKED = ("cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")
_IGNORED = -100
"""The label that losses of torch leave out."""
MOST_READ = 1 << 19
_DEPTH = 2


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch: of `rows` × `width` positions, `real` are no padding, and `longest` of them in the longest
    row. `trained` have a label that counts in the loss, -1 if unknown. Without a mask `is_masked` is false, and `real`
    is all of them: padding has to be seen in the batch itself, unless it `is_packed`.
    """

    rows: int
    width: int
    real: int
    longest: int
    trained: int = -1
    is_masked: bool = True
    is_packed: bool = False


class Pending:
    """Row sums that a GPU computes: of a mask, and of labels if there are any."""

    def __init__(self, shape: tuple[int, int], sums: list[Any]) -> None:
        self._cuda = sys.modules["torch"].cuda
        self._shape, self._sums = shape, sums
        self._device = sums[0].device
        with self._cuda.device(self._device):
            self._event = self._cuda.Event()
            self._event.record()

    def read(self) -> Tokens | None:
        """Return the tokens, None while they are not there yet. Never waits for work of the training."""
        if not self._event.query():
            return None
        with self._cuda.stream(self._cuda.Stream(self._device)):
            real, *labelled = [each.tolist() for each in self._sums]
        rows, width = self._shape
        return Tokens(rows, width, sum(real), max(real), sum(labelled[0]) if labelled else -1)


def count_tokens(given: Any) -> Tokens | Pending | None:
    """Return the tokens of a batch or of the arguments of a call; None if no tensor has one of the known names."""
    named = {name: tensor for name, tensor in reversed([*_list_named(given)]) if tensor.ndim in (1, 2)}
    mask, is_filled = next(((named[name], name in _FILLED) for name in _REAL + _FILLED if name in named), (None, False))
    tokens = next((named[name] for name in _TOKENS if name in named), mask)
    if tokens is None or not tokens.numel():
        return None
    if mask is None and any(name in named for name in _PACKED):
        whole = int(tokens.numel())
        return Tokens(len(tokens), whole // len(tokens), whole, whole // len(tokens), is_packed=True)
    labels = next((named[name] for name in _LABELS if name in named and named[name].shape == tokens.shape), None)
    if tokens.ndim != 2 or (mask is not None and mask.shape != tokens.shape):
        return None
    if mask is not None and is_filled and str(mask.dtype) != "torch.bool":  # added to the scores: 0 and minus infinity
        return None
    if mask is None and tokens.device.type != "cpu":  # its padding cannot be seen
        return None
    return _count(tuple(tokens.shape), mask, labels, is_filled)


def _count(shape: tuple[int, int], mask: Any, labels: Any, is_filled: bool) -> Tokens | Pending | None:
    tensors = [tensor for tensor in (mask, labels) if tensor is not None]

    def test(values: Any) -> list[Any]:
        found = [] if mask is None else [values[0] == 0 if is_filled else values[0] != 0]
        return found if labels is None else [*found, values[-1] != _IGNORED]

    if mask is not None and all(tensor.device.type == "cuda" for tensor in tensors):
        return _launch(shape, tensors, test)
    rows, width = shape
    views = [view_numbers(tensor) for tensor in tensors]
    if rows * width > MOST_READ or any(view is None for view in views):
        return None
    sums = [found.sum(axis=1) for found in test(views)]
    trained = int(sums[-1].sum()) if labels is not None else -1
    if mask is None:
        return Tokens(rows, width, rows * width, width, trained, is_masked=False)
    return Tokens(rows, width, int(sums[0].sum()), int(sums[0].max()), trained)


def _launch(shape: tuple[int, int], tensors: list[Any], test: Callable[[Any], list[Any]]) -> Pending | None:
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_current_stream_capturing():
        return None
    with torch.no_grad():
        return Pending(shape, [found.sum(1) for found in test(tensors)])


def _list_named(value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the plain tensors with names, the outermost first."""
    tensor: Any = sys.modules["torch"].Tensor
    inner = []
    if isinstance(value, Mapping):
        for name, each in value.items():
            if type(each) is tensor and isinstance(name, str):
                yield name, each
            else:
                inner.append(each)
    elif isinstance(value, (list, tuple)):
        inner = list(value[:16])
    if depth:
        for each in inner:
            yield from _list_named(each, depth - 1)
