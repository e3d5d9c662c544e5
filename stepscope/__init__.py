"""Stepscope: `from stepscope import Profiler`. All names are those of `collector`, which is the same package's older name.

The other modules here are doors, one for each library that Stepscope meets: `stepscope.lightning`,
`stepscope.transformers` … A door imports its library, `collector` and no other door. Importing this package imports
neither of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import collector
from collector import __all__ as __all__

if TYPE_CHECKING:
    from collector import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stepscope' has no attribute {name!r}")
    return getattr(collector, name)


def load_ipython_extension(shell: Any) -> None:
    """Follow `%load_ext stepscope`: give notebooks the cell magic `%%stepscope`."""
    from stepscope.notebook import register

    register(shell)


def unload_ipython_extension(shell: Any) -> None:
    from stepscope.notebook import unregister

    unregister(shell)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
