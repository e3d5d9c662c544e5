"""One file per trace format; a module here declares FORMAT (`TraceFormat`). There is no list of the modules.

Formats do not import each other. Slow imports happen only when a file is read.
"""
