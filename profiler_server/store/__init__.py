"""Base directory to catalog of runs to tables.

May import collector.run, collector.parts, collector.schema, collector.traces. Must not import a room above it, or torch.
"""
