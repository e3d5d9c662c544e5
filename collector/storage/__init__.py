"""Runs in buckets: what a URL names, how it is opened, and the process that copies a run there while it is recorded.

Must not be imported by what records: only the session starts the process.
"""
