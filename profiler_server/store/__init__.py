"""Runs below a base directory: the list of runs, with their states and headline figures.

Must not import anything above, or torch.
"""
