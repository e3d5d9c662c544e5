"""Every threshold, by family, with its reference and its source.

A share (`_FRAC`) is of the mean step unless its sentence names something else. A figure without a source is our choice.
It was made with runs into which causes were planted (docs/concepts/diagnosis.md). Both sides of each threshold are tested
(tests/unit/diagnosis/edges). Imports nothing.
"""

import pkgutil
from functools import cache
from importlib import import_module


@cache
def list_limits() -> dict[str, object]:
    """Return all thresholds by name."""
    families = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {name: value for family in families for name, value in vars(family).items() if name.isupper()}
