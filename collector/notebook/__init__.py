"""The outputs of an opened run in a script or notebook: frames, printed tables, figures, HTML, traces.

May import `collector.format` and `collector.traces.writing`, and uses the server through `collector.server`. Must not
import torch.
"""
