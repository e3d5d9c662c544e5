"""One file per page; each returns a typed context for its template.

May import profiler_server.rules, profiler_server.analysis, profiler_server.timeline, profiler_server.store. Must not import a room above it, or torch.
"""
