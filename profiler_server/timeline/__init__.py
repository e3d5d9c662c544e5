"""Level-of-detail pyramid, tiles, search, export.

May import profiler_server.store, collector.run, collector.parts, collector.schema. Must not import a room above it, or torch.
"""
