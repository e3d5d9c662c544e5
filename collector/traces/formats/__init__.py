"""One file per trace format; a module here declares FORMAT (`TraceFormat`) and is found by being here.

Formats do not import each other. What takes long to import is imported where a file is read.
"""
