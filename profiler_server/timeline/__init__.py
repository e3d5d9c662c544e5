"""A rank's slices as lanes at several levels of detail: tiles for the viewer, search, and trace export.

Must not import a page, the web room, or torch.
"""
