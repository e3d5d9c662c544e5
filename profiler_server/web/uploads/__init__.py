"""Trace files that a browser sends, or that lie below the base directory: imported by a process of its own.

May import collector.traces, collector.format.schema, profiler_server.store, settings and web.links. Must not import a route.
"""
