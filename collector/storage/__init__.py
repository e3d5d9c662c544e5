"""Put runs into buckets: parse a URL, open its file system, and copy a run there while it is recorded.

Must not be imported by recording code, except the session, which starts the process that copies.
"""
