"""The time of a step: divided into torch-tb-profiler's categories, and divided into causes."""
