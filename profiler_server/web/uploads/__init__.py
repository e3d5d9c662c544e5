"""Trace files that a browser sends: received to disk, then imported by a process of its own.

May import collector.traces, collector.schema, profiler_server.store and settings. Must not import a route.
"""
