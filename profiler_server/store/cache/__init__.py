"""Caches of what is computed from a run: `memory`, `disk`, the `background` threads that fill them, and the `stamp` of a state of files.

Every key holds the lens that a rank is seen through (`RankRun.key`). `folders` says where the files of a cache lie.
"""
