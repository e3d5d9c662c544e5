"""One file per trace format; a module here declares FORMAT (see `collector.traces.format`) and is found by being here.

May import `collector.traces` below it, `collector.format.parts`, `collector.format.schema`. Formats do not import each other.
"""
