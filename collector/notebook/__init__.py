"""What an opened run answers with in a script or a notebook: frames, printed tables, figures, HTML, traces.

May import `collector.format` and `collector.traces.writing`, and asks the server by `collector.server`. Must not import torch.
"""
