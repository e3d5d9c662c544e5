"""Runs below a base directory: which runs there are, their states and their headline figures.

Must not import anything above, or torch.
"""
