"""From a base directory to runs: what is there, in which state, and its headline figures.

May import collector.schema, collector.parts, collector.run. Must not import analysis or anything above it, or torch.
"""
