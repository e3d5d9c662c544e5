"""One file per trace format; a module here declares FORMAT (see `collector.traces.format`) and is found by being here.

Formats do not import each other.
"""
