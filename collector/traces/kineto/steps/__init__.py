"""Find the bounds of the steps of a trace, and their phases. May import `classify` and its imports."""
