"""Python stacks of another process, read from its memory: it is never stopped, and does nothing for it.

Must not be imported by what runs at every step.
"""
