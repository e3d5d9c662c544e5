"""Records drawn programs, and says how often the advice on them is right and how far off its predictions are."""
