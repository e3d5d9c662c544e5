"""The runs below a base directory: the list of runs, with their states and headline figures.

The store must not import anything above it, or torch.
"""
