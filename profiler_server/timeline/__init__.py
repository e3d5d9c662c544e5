"""A rank's slices as lanes, in levels of detail: tiles for the viewer, search, sums of an area, export of traces.

May import profiler_server.store, analysis and format, collector.run, collector.parts, collector.traces and
collector.schema. Must not import a page, the web room, or torch.
"""
