"""What an opened run answers with: frames, summaries, figures, files.

May import `collector.format.schema` and `collector.format.parts`. Must not import `collector.format.run`, which is made of these, or torch.
"""
