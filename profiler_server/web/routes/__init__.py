"""Routes by subject. Each module here declares `ROUTER`, a FastAPI router, and is found by its being there.

A router with `LAST = True` beside it is put behind the others, because it catches every path below its own.
"""
