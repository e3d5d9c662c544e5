"""What an opened run answers with: frames, summaries, figures, files. No torch."""
