"""The numbers of tensors on the host, read by NumPy: nothing runs in PyTorch but a detach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def view_numbers(tensor: Any) -> npt.NDArray[Any] | None:
    """Return the numbers of a tensor without a copy; None if this is not possible."""
    if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided" or str(tensor.dtype) == "torch.bfloat16":
        return None
    if not tensor.numel() or tensor.is_conj() or tensor.is_neg():
        return None
    array: npt.NDArray[Any] = (tensor.detach() if tensor.requires_grad else tensor).numpy()
    return array


def take_some(array: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    """Return at most `most` numbers of an array, spread over it."""
    # The stride shares no factor with usual sizes, so that the values come from all rows and columns.
    every = max(array.size // most, 1) | 1
    return array.flat[: most * every : every]


def count_subnormals(array: npt.NDArray[Any]) -> int:
    """Return how many numbers are nearer to zero than the smallest normal number of their type, but not zero."""
    import numpy as np

    if array.dtype.kind != "f":
        return 0
    sizes = np.abs(array)
    return int(((sizes > 0) & (sizes < np.finfo(array.dtype).tiny)).sum())
