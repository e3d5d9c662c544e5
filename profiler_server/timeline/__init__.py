"""A rank's slices as lanes, in levels of detail: tiles for the viewer, search, sums of an area, export of traces.

May import profiler_server.store, analysis and format, collector.format.run, collector.format.parts, collector.traces and
collector.format.schema. Must not import a page, the web room, or torch.
"""
