"""A rank's slices as lanes, in levels of detail: tiles for the viewer, search, sums of an area, export of traces.

Must not import a page, the web room, or torch.
"""
