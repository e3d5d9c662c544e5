"""The declarations of a run directory: tables, manifests, paths, errors.

Every other package depends on this one, so it imports only the standard library, msgspec, `phases` and `words`.
"""
