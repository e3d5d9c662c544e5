"""One file per page; each returns a typed context for its template.

May import profiler_server.diagnosis, analysis, timeline, store, figures, page and format, collector.format.run and
collector.format.schema. Must not import another page, a rule, the web room, or torch.
"""
