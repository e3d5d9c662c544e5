"""Names that PyTorch registers or defines: `python -m tests.support.torch_names > profiler_server/store/vocabulary/torch.txt`.

The server never imports torch, so it reads the file; a test compares it with the PyTorch that is installed.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

_STRUCT = re.compile(r"^struct TORCH_API (\w+) : public", re.MULTILINE)


def find_names() -> dict[str, set[str]]:
    """Return the names by kind: operators with their namespace, the others bare."""
    import torch.optim
    import torch.utils.data

    registered = {schema.name for schema in torch._C._jit_get_all_schemas()}
    registered |= {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    data = {name for name in dir(torch.utils.data) if name[0].isupper()}
    return {
        "operator": registered,
        "node": _find_nodes(),
        "module": {name for name, kind in vars(torch.nn).items() if _is_class(kind, torch.nn.Module)},
        "optimizer": {name for name, kind in vars(torch.optim).items() if _is_class(kind, torch.optim.Optimizer)},
        "sampler": {name for name in data if name.endswith("Sampler")},
        "iterator": {name for name in dir(torch.utils.data.dataloader) if name.endswith("LoaderIter")},
    }


def _find_nodes() -> set[str]:
    import torch

    header = Path(torch.__file__).parent / "include/torch/csrc/autograd/generated/Functions.h"
    own = {name for name in dir(torch._C._functions) if name[0].isupper()}
    return own | set(_STRUCT.findall(header.read_text("utf-8"))) | {"AccumulateGrad", "CopySlices", "GraphRoot"}


def _is_class(kind: object, base: type) -> bool:
    return inspect.isclass(kind) and issubclass(kind, base)


def write_names(found: dict[str, set[str]]) -> Iterator[str]:
    """Yield the lines of the file: a kind, with the namespace of operators, then its names."""
    for kind, names in found.items():
        spaces: dict[str, list[str]] = {}
        for name in sorted(names):
            spaces.setdefault(name.rpartition("::")[0], []).append(name.rpartition("::")[2])
        for space, bare in spaces.items():
            yield f"[{kind} {space}]" if space else f"[{kind}]"
            yield from _fill(bare)


def _fill(names: Iterable[str]) -> list[str]:
    return textwrap.wrap(" ".join(names), 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    print("\n".join(write_names(find_names())))
