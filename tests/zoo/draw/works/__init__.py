"""One file per kind of work, and nothing else: each has a WORK. Must not import another one."""
