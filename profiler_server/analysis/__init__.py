"""Pure functions from tables to frozen results; never plots, never reads a request.

May import profiler_server.store, collector.format.run, collector.format.schema. Must not import a room above it, or torch.
"""
