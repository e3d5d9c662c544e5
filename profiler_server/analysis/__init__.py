"""Pure functions from tables to frozen results; never plots, never reads a request.

Must not import a room above it.
"""
