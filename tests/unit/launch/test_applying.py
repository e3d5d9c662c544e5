"""Changes have their effect in a script that sets the opposite."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from collector.format.switches import SWITCHES
from tests.support import forking

SCRIPT = """
import json, sys
import torch
from torch import nn
from collector.launch.trying.applying import apply_change

apply_change(json.loads(sys.argv[1]))
from torch.utils.checkpoint import checkpoint

torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.mkldnn.enabled = False
torch.backends.cudnn.enabled = False
seen = {"forwards": 0}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        seen["forwards"] += 1
        seen["dtype"] = str(x.dtype)
        x = torch.zeros(x.shape).index_add_(1, torch.arange(x.shape[1]), x)  # of the default dtype
        x, weights = self.attention(x, x, x)
        seen["weights"] = weights is not None
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


net, head = Net(), nn.Linear(8, 1)
parameters = [*net.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.01)
for _ in range(4):
    loss = head(net(torch.randn(2, 3, 8, dtype=torch.float64))).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
seen["loss"], seen["default"] = str(loss.dtype), str(torch.get_default_dtype())
seen["kept"] = parameters[0].grad is not None
seen["parameters"] = sorted({str(each.dtype) for each in parameters})
seen["deterministic"] = torch.are_deterministic_algorithms_enabled()
seen["flash_sdp"] = torch.backends.cuda.flash_sdp_enabled()
seen["mkldnn"], seen["cudnn"] = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
print(json.dumps(seen))
"""
UNCHANGED = {
    "forwards": 8,
    "dtype": "torch.float64",
    "weights": True,
    "loss": "torch.float64",
    "default": "torch.float64",
    "kept": True,
    "parameters": ["torch.float64"],
    **{each.name: not each.usual for each in SWITCHES},
}


CHANGES = {
    "checkpoint": False,
    "need_weights": False,
    "zero_grad_none": True,
    "float32": True,
    **{each.name: each.usual for each in SWITCHES},
}
CHANGED = {
    "forwards": 4,
    "dtype": "torch.float32",
    "weights": False,
    "loss": "torch.float64",
    "default": "torch.float64",
    "kept": False,
    "parameters": ["torch.float32"],
    **{each.name: each.usual for each in SWITCHES},
}


@pytest.mark.parametrize(("changes", "seen"), [({}, UNCHANGED), (CHANGES, CHANGED)])
def test_each_change_replaces_what_the_script_sets(changes: dict[str, Any], seen: dict[str, Any]) -> None:
    words = [sys.executable, "-c", SCRIPT, json.dumps(changes)]
    done = forking.run(words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == seen
