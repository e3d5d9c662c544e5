"""What goes to experiment trackers, and how the real ones take it."""
