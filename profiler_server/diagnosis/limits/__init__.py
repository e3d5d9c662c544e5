"""Every threshold by family, with what it is a share of, and its source.

A share (`_FRAC`) is of the mean step unless its sentence says otherwise. Where a figure has no source it is our choice,
made on planted causes (docs/diagnosis.md). Both sides of each are tested (tests/unit/diagnosis/edges). Imports nothing.
"""

import pkgutil
from functools import cache
from importlib import import_module


@cache
def list_limits() -> dict[str, object]:
    """Return every threshold by its name."""
    families = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {name: value for family in families for name, value in vars(family).items() if name.isupper()}
