"""Which Python functions a phase or a stage spent its time in: pure functions over the table `stacks`.

Must not import pages or figures.
"""
