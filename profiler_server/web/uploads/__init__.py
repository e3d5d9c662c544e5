"""Trace files from a browser or below the base directory, imported by a separate process.

Must not import a route.
"""
