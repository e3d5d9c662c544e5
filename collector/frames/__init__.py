"""Python stacks of another process, read from its memory: it is never stopped, and does nothing for it.

May import the standard library and `collector.format.schema.writing`. Must not be imported by what runs at every step.
"""
