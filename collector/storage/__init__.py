"""Runs in buckets: the parts of a URL, its file system, and the process that copies a run to it during the recording.

Must not be imported by recording code: only the session starts the process.
"""
