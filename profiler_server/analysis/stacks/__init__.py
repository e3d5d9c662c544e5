"""The Python functions in which a phase or a stage spends its time: pure functions over the table `stacks`.

Must not import pages or figures.
"""
