"""The dependency graph of a recorded window: replayed as it was, replayed with changes, and its critical path."""
