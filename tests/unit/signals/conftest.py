"""What tests of signals share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let PyTorch compute in one thread, as quickly as small tensors allow beside other tests; forget what it compiled."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
