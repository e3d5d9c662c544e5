"""Where the steps of a trace begin and end, and their phases. May import `classify` and what that may."""
