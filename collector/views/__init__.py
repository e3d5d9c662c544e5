"""What an opened run answers with: frames, summaries, figures, files.

May import `collector.schema` and `collector.parts`. Must not import `collector.run`, which is made of these, or torch.
"""
