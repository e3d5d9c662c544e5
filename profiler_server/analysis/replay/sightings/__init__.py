"""What is looked for in a recorded window, one family of sightings per file."""
