"""Every threshold by family, with what it is a share of, and its source.

A share (`_FRAC`) is of the mean step unless its sentence says otherwise. Where a figure has no source it is our choice,
made on planted causes (docs/diagnosis.md). Both sides of each are tested (tests/unit/diagnosis/edges). Imports nothing.
"""
