"""Read Python stacks of the training from its memory, without stopping it, to learn which functions take the time.

Must not be imported by code that runs at every step.
"""
