"""How much is collected: the level chooses, and what is named beside it counts."""

from __future__ import annotations

from pathlib import Path

import torch

from collector.options import Options, parse_options
from tests.support.recording import record


def loop() -> None:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8)), 4):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def test_the_level_important_records_steps_and_nothing_beside_them(tmp_path: Path) -> None:
    recorded = record(tmp_path, loop, level="important", window=None)
    assert len(recorded.train) == 8
    status = recorded.run.rank().status("stages")
    assert status.state == "off"
    assert 'level="important" without data_pipeline' in status.reason


def test_what_is_switched_on_by_name_is_recorded_at_any_level() -> None:
    options = parse_options({"level": "important", "resources": True, "window": (5, 2)})
    assert (options.resources, options.window.first, options.is_on("window")) == (True, 5, True)
    assert not options.data_pipeline


def test_the_level_info_is_the_default_and_leaves_everything_on() -> None:
    assert parse_options({"level": "info"}) == parse_options({}) == Options()
