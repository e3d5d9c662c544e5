"""Accounts of a step's time for pages and reports: by torch-tb-profiler's categories, and by causes."""
