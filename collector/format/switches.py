"""Switches of PyTorch that can make training slower, and what changes them back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """A switch of PyTorch that can make training slower when it is not as PyTorch starts. Its state is the fact `name`.

    `path` is the attribute of torch with the state, or with the function that returns it. `usual` is the state at the
    start of PyTorch, and `code` is the line that brings it back.
    """

    name: str
    meaning: str
    path: str
    usual: bool
    code: str


SWITCHES: tuple[Switch, ...] = (
    Switch(
        "deterministic",
        "Whether only deterministic algorithms were allowed.",
        "are_deterministic_algorithms_enabled",
        False,
        "torch.use_deterministic_algorithms(False)",
    ),
    Switch(
        "flash_sdp",
        "Whether scaled_dot_product_attention may use its flash kernel.",
        "backends.cuda.flash_sdp_enabled",
        True,
        "torch.backends.cuda.enable_flash_sdp(True)",
    ),
    Switch(
        "mkldnn",
        "Whether oneDNN may compute convolutions and products on processors.",
        "backends.mkldnn.enabled",
        True,
        "torch.backends.mkldnn.enabled = True",
    ),
    Switch(
        "cudnn",
        "Whether cuDNN may compute convolutions.",
        "backends.cudnn.enabled",
        True,
        "torch.backends.cudnn.enabled = True",
    ),
)
"""A switch counts as changed if it was not as usual at any of the times when the settings were read."""
