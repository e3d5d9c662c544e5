"""Routes of the server, a module per subject. Each module that declares `ROUTER`, a FastAPI router, is found; no list
names it.

The modules do not import each other.
"""
