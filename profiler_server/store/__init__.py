"""From a base directory to runs: what is there, in which state, and its headline figures.

May import collector.format.schema, collector.format.parts, collector.format.run, collector.traces; of analysis only steps and results, so
that the list averages the same steps as the pages. Must not import anything above, or torch.
"""
