"""What modules are called with: padding by the batch itself, and calls whose result was there before."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from collector.context.padding import MOST_NUMBERS, find_in_call, find_padding
from collector.signals.calls import CallsSignal
from profiler_server.analysis.recorded_facts import read_model_calls
from profiler_server.facts.steps import ModelCalls
from tests.support.recording import record

STEPS = 130
RANDOM = np.random.default_rng(7)
LENGTHS = np.array([12, 18, 9, 20, 11, 14, 10, 17])
Array = npt.NDArray[Any]


def pad(rows: Array, fill: float, lengths: Array = LENGTHS) -> Array:
    """Fill rows up from their lengths on."""
    filled = rows.copy()
    for row, length in zip(filled, lengths, strict=True):
        row[length:] = fill
    return filled


TOKENS = RANDOM.integers(1, 900, (8, 40))
WAVES = RANDOM.normal(size=(8, 40))
SPECTRA = RANDOM.normal(size=(8, 40, 5))
KNOWN = np.ones((8, 40), np.int64)


@pytest.mark.parametrize(
    "rows",
    [
        pad(TOKENS, 0),
        pad(TOKENS, -100),
        pad(TOKENS, 0)[:, ::-1],
        pad(WAVES, 0.0),
        pad(SPECTRA, 0.0),
        pad(SPECTRA, 0.0).swapaxes(1, 2),
        pad(RANDOM.random((8, 40, 1, 12)), 1.0).transpose(0, 2, 3, 1),
        pad(RANDOM.random((8, 40, 9, 10, 3)), 0.0),
        pad(KNOWN, 0),
        pad(KNOWN, 0).astype(np.bool_),
        ~pad(KNOWN, 0).astype(np.bool_),
    ],
    ids=["tokens", "labels", "left", "waves", "spectra", "channels", "images", "volumes", "mask", "bool", "inverse"],
)
def test_padding_is_seen_in_what_is_filled_up(rows: Array) -> None:
    found = find_padding(rows)
    assert found is not None
    assert found.useful_frac == pytest.approx(LENGTHS.mean() / 40)
    assert (found.longest_frac, found.width, found.rows) == (0.5, 40, 8)


@pytest.mark.parametrize(("features", "is_seen"), [(1 << 10, True), (1 << 14, False)])
def test_of_a_large_batch_the_first_rows_are_looked_at(features: int, is_seen: bool) -> None:
    rows = pad(np.ones((8, 40, features), np.float32), 0.0)
    assert rows.size > MOST_NUMBERS
    assert (find_padding(rows) is not None) == is_seen


def draw_digits() -> Array:
    """Pictures on black ground."""
    pictures = np.zeros((8, 28, 28), np.float32)
    for at, picture in enumerate(pictures):
        picture[4 + at % 3 : 20 + at % 5, 6:22] = RANDOM.random((16 + at % 5 - at % 3, 16))
    return pictures


@pytest.mark.parametrize(
    "rows",
    [
        TOKENS,
        WAVES,
        RANDOM.random((8, 40)) < 0.9,
        np.eye(8)[RANDOM.integers(0, 8, 64)],
        (RANDOM.random((16, 200)) < 0.03).astype(np.float32),
        draw_digits(),
        draw_digits().reshape(8, -1),
        draw_digits()[:, None],
        RANDOM.random((8, 3, 32, 32)),
        np.tril(np.ones((32, 32))),
        np.triu(np.full((32, 32), -np.inf), 1),
        pad(TOKENS, 0, np.full(8, 30)),
        np.zeros((8, 40)),
        pad(TOKENS, 0)[:3],
        pad(TOKENS, 0)[:, :7],
        np.full((8, 40), np.nan),
    ],
    ids=[
        *(
            "tokens",
            "waves",
            "dropout",
            "one hot",
            "sparse",
            "pictures",
            "flat pictures",
            "one channel",
            "colours",
            "causal",
            "causal sum",
        ),
        *("same lengths", "zeros", "few rows", "short", "nan"),
    ],
)
def test_what_only_looks_like_padding_is_none(rows: Array) -> None:
    assert find_padding(rows) is None


@pytest.mark.parametrize(("zeros", "is_padding"), [(4, True), (7, False)])
def test_a_fill_that_is_also_inside_of_the_rows_is_a_value_like_any_other(zeros: int, is_padding: bool) -> None:
    rows = pad(np.ones((8, 40)), 0.0)  # 111 positions are in use, of which 5.55 may be zero
    for at in range(zeros):
        rows[at % 8, 1 + at // 8] = 0.0
    assert (find_padding(rows) is not None) is is_padding


def test_ones_and_zeros_are_a_mask_only_beside_what_they_mask() -> None:
    mask = pad(KNOWN, 0)
    assert find_in_call([mask]) is None  # levels, each told by so many ones
    assert find_in_call([mask, np.arange(8)]) is None
    assert find_in_call([SPECTRA, mask]) == find_padding(mask)


def make_tagger() -> nn.Module:
    return nn.Sequential(nn.Embedding(900, 16), nn.Linear(16, 4))


def see(path: Path, step: Callable[[int], object]) -> dict[str, ModelCalls]:
    def loop() -> None:
        for at in range(STEPS):
            step(at)

    recorded = record(path, loop)
    assert not [entry for entry in recorded.run.rank().manifest.signals if entry.state == "failed"]
    return {found.model: found for found in read_model_calls(recorded.run.rank().manifest.facts)}


@pytest.mark.parametrize("is_padded", [True, False])
def test_a_model_that_gets_padded_batches_is_noted_with_its_line(is_padded: bool, tmp_path: Path) -> None:
    model = make_tagger()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    words = torch.from_numpy(pad(TOKENS, 0) if is_padded else TOKENS)

    def step(at: int) -> None:
        optimizer.zero_grad()
        model(words[torch.randperm(8)]).square().mean().backward()
        optimizer.step()

    found = see(tmp_path, step)
    if not is_padded:
        assert found == {}
        return
    calls = found["Sequential"]
    assert calls.place.startswith("test_calls.py:")
    assert calls.looks == calls.calls == calls.padded >= 3
    assert calls.useful_frac == pytest.approx(LENGTHS.mean() / 40, abs=1e-4)
    assert calls.longest_frac == 0.5
    assert (calls.width, calls.rows, calls.again, calls.known) == (40, 8, 0, 0)


class _Masked(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tagger = make_tagger()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = self.tagger(input_ids).square().mean(2)[labels != -100].mean()
        assert isinstance(loss, torch.Tensor)
        return loss


def test_the_tokens_of_named_tensors_are_counted_in_training_and_not_in_evaluation(tmp_path: Path) -> None:
    model = _Masked()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mask = torch.from_numpy(pad(KNOWN, 0))
    batch = {"input_ids": torch.randint(0, 900, (8, 40)), "attention_mask": mask}
    batch["labels"] = torch.where(mask == 1, 5, -100)
    batch["labels"][:, 0] = -100

    def step(at: int) -> None:
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()
        with torch.no_grad():
            model.eval()(**{**batch, "attention_mask": torch.ones_like(mask)})
        model.train()

    def loop() -> None:
        for at in range(STEPS):
            step(at)

    seen = read_model_calls(record(tmp_path, loop).run.rank().manifest.facts)
    (calls,) = (found for found in seen if found.tokens)
    assert calls.calls == calls.padded >= 3
    assert calls.useful_frac == pytest.approx(LENGTHS.mean() / 40, abs=1e-4)
    assert (calls.tokens, calls.token_rows) == (320 * calls.calls, 8 * calls.calls)
    assert (calls.real, calls.trained) == (LENGTHS.sum() * calls.calls, (LENGTHS.sum() - 8) * calls.calls)


def test_a_loader_of_padded_batches_is_noted(tmp_path: Path) -> None:
    model = make_tagger()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows = torch.from_numpy(np.tile(pad(TOKENS, 0), (STEPS, 1)))
    batches = iter(DataLoader(rows, batch_size=8))

    def step(at: int) -> None:
        loss = model(next(batches)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    found = see(tmp_path, step)
    assert found["Sequential"].padded == found["DataLoader"].padded >= 3


def test_the_other_lines_that_call_a_padded_model_are_noted_with_their_positions(tmp_path: Path) -> None:
    model = make_tagger()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    queries, passages = torch.from_numpy(pad(TOKENS, 0)), torch.randint(1, 900, (8, 150))

    def step(at: int) -> None:
        optimizer.zero_grad()
        loss = model(queries).square().mean()
        (loss + model(passages).square().mean()).backward()
        optimizer.step()

    def loop() -> None:
        for at in range(STEPS):
            step(at)

    seen = read_model_calls(record(tmp_path, loop).run.rank().manifest.facts)
    short, long = sorted(seen, key=lambda found: found.positions)
    assert (short.positions, long.positions) == (8 * 40 * short.calls, 8 * 150 * long.calls)
    assert (short.padded, long.padded) == (short.calls, 0)


def distil(kind: str) -> Callable[[int], None]:
    """A student learns from a teacher. `kind` says what of it is computed again."""
    teacher, student = nn.Sequential(nn.Linear(32, 64), nn.Tanh()), nn.Linear(32, 64)
    drop, models = nn.Dropout(0.5), [teacher]
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    all_rows = torch.randn(16, 32)

    def step(at: int) -> None:
        rows = all_rows if kind in ("same", "moved", "synced", "copied") else torch.randn(16, 32)
        if kind == "constant":
            rows[0] = all_rows[0]
        if kind == "epochs":
            rows = all_rows[torch.randperm(16)[:8]]
        with torch.no_grad():
            target = models[0](rows)
            if kind == "again":
                teacher(rows)
            if kind == "moved" and at % 50 == 49:
                teacher[0].weight.data = teacher[0].weight + 1e-6
            if kind == "copied" and at % 10 == 9:
                models[0] = deepcopy(teacher)
            if kind == "synced" and at == STEPS - 1:
                teacher[0].load_state_dict(student.state_dict())
            if kind == "random":
                drop(rows)
                drop(rows)
        optimizer.zero_grad()
        mse_loss(student(rows), target).backward()
        optimizer.step()

    return step


def test_a_second_call_with_the_same_input_is_noted(tmp_path: Path) -> None:
    calls = see(tmp_path, distil("again"))["Sequential"]
    assert (calls.calls, calls.again, calls.known) == (calls.looks, calls.looks, 0)
    assert calls.again_ns > 0


def test_a_result_that_stays_the_same_is_noted(tmp_path: Path) -> None:
    found = see(tmp_path, distil("same"))
    assert set(found) == {"Sequential"}  # the student learns
    calls = found["Sequential"]
    assert (calls.again, calls.known) == (0, 16 * (calls.looks - 1))


def test_rows_that_come_back_in_later_epochs_are_noted(tmp_path: Path) -> None:
    calls = see(tmp_path, distil("epochs"))["Sequential"]
    assert (calls.again, calls.known > 0, calls.known < 8 * calls.looks) == (0, True, True)
    assert calls.known_ns > 0


def test_one_constant_row_among_others_counts_once(tmp_path: Path) -> None:
    assert see(tmp_path, distil("constant"))["Sequential"].known == 1


@pytest.mark.parametrize("kind", ["", "random", "moved", "synced", "copied"])
def test_calls_with_results_of_their_own_are_not_noted(kind: str, tmp_path: Path) -> None:
    assert see(tmp_path, distil(kind)) == {}


def test_ctrl_c_during_a_look_shows_no_frame_of_ours() -> None:
    def interrupt(*call: object) -> None:
        raise KeyboardInterrupt

    signal = CallsSignal()
    looks: Any = SimpleNamespace(step=1, see=interrupt)
    context: Any = SimpleNamespace(steps=SimpleNamespace(ended=0))
    signal._may_trace, signal._watchers, signal._look, signal._context = bool, [], looks, context
    with pytest.raises(KeyboardInterrupt) as found:
        signal._see(0, None, None, None)
    assert [entry.path for entry in found.traceback if "collector" in Path(entry.path).parts] == []
