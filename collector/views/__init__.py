"""What an opened run answers with: frames, summaries, figures, files.

Must not import `collector.format.run`, which is made of these, or torch.
"""
