"""Routes by subject. Each module here that declares `ROUTER`, a FastAPI router, is found; nothing lists it.

The modules do not import each other.
"""
