"""The numbers of tensors on the host, read by NumPy: nothing runs in PyTorch but a detach."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def view_numbers(tensor: Any) -> npt.NDArray[Any] | None:
    """Return the numbers of a tensor without a copy; None if this is not possible.

    `Tensor.numpy()` would forbid for ever to resize the tensor's memory, as FSDP does with gathered parameters, so the
    numbers are read through DLPack.
    """
    if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided" or str(tensor.dtype) == "torch.bfloat16":
        return None
    if not tensor.numel() or tensor.is_conj() or tensor.is_neg() or _is_freed(tensor):
        return None
    import numpy as np

    with suppress(BufferError, RuntimeError, TypeError):  # a type of numbers that NumPy does not know
        array: npt.NDArray[Any] = np.from_dlpack(tensor.detach() if tensor.requires_grad else tensor)
        return array
    return None


def _is_freed(tensor: Any) -> bool:
    """Return whether the memory of a tensor is smaller than its numbers: it was freed to be filled again later."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return bool((tensor.storage_offset() + last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes())


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
