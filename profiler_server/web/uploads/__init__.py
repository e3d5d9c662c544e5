"""Trace files that a browser sends, or that lie below the base directory: imported by a process of its own.

Must not import a route.
"""
