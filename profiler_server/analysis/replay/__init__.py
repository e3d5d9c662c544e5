"""The dependency graph of a detailed window: its replay as recorded, its replay with changes, and its critical path.
Predictions for changes on the device come from it."""
