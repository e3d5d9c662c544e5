"""The dependency graph of a recorded window: its replay as recorded, its replay with changes, and its critical path."""
