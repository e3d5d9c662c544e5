"""From a base directory to runs: what is there, in which state, and its headline figures.

Must not import anything above, or torch.
"""
