"""Which Python functions a phase or a stage spent its time in: pure functions over the table `stacks`.

May import the formats of `collector`, the store and what all analysis shares. Must not import pages or figures.
"""
