"""Routes by subject. Each module here that declares `ROUTER`, a FastAPI router, is found; nothing lists it.

May import everything that the web room may. The modules do not import each other.
"""
