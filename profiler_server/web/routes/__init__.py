"""Routes by subject. Each module here declares `ROUTER`, a FastAPI router, and is found by its being there.

May import everything that the web room may. The modules do not import each other.
"""
