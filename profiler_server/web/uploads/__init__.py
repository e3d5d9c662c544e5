"""Trace files that a browser uploads, imported by a separate process.

Must not import a route.
"""
