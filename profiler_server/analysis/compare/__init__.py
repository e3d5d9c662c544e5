"""Two runs set against each other."""
