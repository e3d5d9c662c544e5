"""Find the bounds of the steps of a trace, and the phases of these steps. May import `classify` and its imports."""
