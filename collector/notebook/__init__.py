"""Show and export an opened run in a script or notebook: as frames, printed tables, figures, HTML and traces.

May import `collector.format` and `collector.traces.writing`, and uses the server through `collector.server`. Must not
import torch.
"""
