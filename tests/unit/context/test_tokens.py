"""Tokens of a batch that are no padding, told by the names of its tensors."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from collector.context import tokens
from collector.context.padding import take_mask
from collector.context.tokens import Pending, Tokens, count_tokens

IDS = torch.arange(1, 13).reshape(2, 6)
MASK = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
LABELS = torch.tensor([[-100, -100, 3, 4, -100, -100], [-100, 2, -100, -100, -100, -100]])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"input_ids": IDS, "attention_mask": MASK, "labels": LABELS}, Tokens(2, 6, 6, 4, 3)),
        (({"input_ids": IDS, "attention_mask": MASK.bool()}, {}), Tokens(2, 6, 6, 4)),
        ((IDS, {"attention_mask": MASK}), Tokens(2, 6, 6, 4)),
        (UserDict(input_ids=IDS, attention_mask=MASK), Tokens(2, 6, 6, 4)),
        ((torch.rand(2, 6, 3), {"src_key_padding_mask": MASK == 0}), Tokens(2, 6, 6, 4)),
        ((torch.rand(2, 6, 3), {"src_key_padding_mask": torch.zeros(2, 6)}), None),
        ({"input_ids": IDS}, Tokens(2, 6, 12, 6, is_masked=False)),
        ({"input_ids": IDS, "labels": LABELS}, Tokens(2, 6, 12, 6, 3, is_masked=False)),
        ({"input_ids": IDS[:1], "cu_seqlens": torch.tensor([0, 2, 6])}, Tokens(1, 6, 6, 6, is_packed=True)),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 1, 6, 6)}, Tokens(2, 6, 12, 6, is_masked=False)),
        ({"images": torch.rand(2, 3, 8, 8), "labels": torch.tensor([1, 2])}, None),
        ([torch.rand(2, 6), torch.rand(2)], None),
        ({"input_ids": IDS[:0], "attention_mask": MASK[:0]}, None),
        (7, None),
    ],
)
def test_masks_and_labels_are_known_by_name(given: Any, found: Tokens | None) -> None:
    assert count_tokens(given) == found


def test_a_mask_is_padding_without_a_guess_at_its_shape() -> None:
    padding = take_mask(Tokens(2, 6, 6, 4))
    assert padding is not None
    assert (padding.useful_frac, padding.longest_frac, padding.width, padding.rows) == (0.5, 4 / 6, 6, 2)
    assert take_mask(Tokens(2, 6, 12, 6)) is None


def test_a_mask_too_large_to_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_READ", 11)
    assert count_tokens({"input_ids": IDS, "attention_mask": MASK}) is None


class _OnDevice:
    """A tensor of a GPU that is not there: its sums are known at once, its event when the test says so."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values, self.shape, self.ndim = values, values.shape, values.ndim
        self.device, self.dtype = SimpleNamespace(type="cuda"), values.dtype

    def numel(self) -> int:
        return int(self.values.numel())

    def __ne__(self, other: object) -> Any:
        return _OnDevice(self.values != other)

    def sum(self, axis: int) -> _OnDevice:
        return _OnDevice(self.values.sum(axis))

    def tolist(self) -> Any:
        assert _streams, "read on the stream of the training"
        return self.values.tolist()


_streams: list[object] = []


@contextmanager
def _use_stream(stream: object) -> Iterator[None]:
    _streams.append(stream)
    yield
    _streams.pop()


def _fake_torch(is_done: list[bool], is_capturing: bool = False) -> SimpleNamespace:
    event = SimpleNamespace(record=lambda: None, query=lambda: is_done[0])
    cuda = SimpleNamespace(
        device=lambda device: nullcontext(),
        Event=lambda: event,
        Stream=lambda device: object(),
        stream=_use_stream,
        is_current_stream_capturing=lambda: is_capturing,
    )
    return SimpleNamespace(Tensor=_OnDevice, cuda=cuda, no_grad=nullcontext)


def test_a_mask_on_a_device_is_read_when_its_event_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    is_done = [False]
    monkeypatch.setitem(sys.modules, "torch", _fake_torch(is_done))
    given = {"input_ids": _OnDevice(IDS), "attention_mask": _OnDevice(MASK), "labels": _OnDevice(LABELS)}
    pending = count_tokens(given)
    assert isinstance(pending, Pending)
    assert pending.read() is None
    is_done[0] = True
    assert pending.read() == Tokens(2, 6, 6, 4, 3)


def test_nothing_is_launched_into_a_graph_and_nothing_is_guessed_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", _fake_torch([True], is_capturing=True))
    assert count_tokens({"input_ids": _OnDevice(IDS), "attention_mask": _OnDevice(MASK)}) is None
    assert count_tokens({"input_ids": _OnDevice(IDS)}) is None
