"""Python stacks of another process, read from its memory without stopping or interrupting the process.

Must not be imported by code that runs at every step.
"""
