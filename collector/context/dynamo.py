"""What the signals ask of Dynamo, without importing it.

PyTorch imports Dynamo late, often when a model is wrapped in DDP. An import of ours before that changes how a job ends:
`torch.distributed.nn.functional`, which Dynamo imports, has the default process group as default argument of its
functions. Imported after `init_process_group`, it keeps the group until the process ends. Imported before, nothing keeps
the group, and its destructor joins threads of gloo that may wait for the interpreter lock (docs/testing.md).
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import CodeType
from typing import Any


def skip_code(code: CodeType) -> None:
    """Let Dynamo run a function of ours as it is, whenever Dynamo comes. `torch._dynamo.eval_frame.skip_code` does the same."""
    eval_frame: Any = sys.modules.get("torch._C._dynamo.eval_frame")  # is there with torch itself
    if hasattr(eval_frame, "skip_code"):  # in C until PyTorch 2.6
        eval_frame.skip_code(code)
        return
    with suppress(AttributeError):  # private: without it Dynamo may break a graph at our function, and all else goes on
        action = eval_frame._FrameAction
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT))


def find_compiled_kind() -> Any:
    """Return the class of modules that `torch.compile` makes, an empty tuple while there can be none."""
    return getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())


def is_backward_compiled() -> bool:
    """Say whether compiled autograd traces this backward."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))
