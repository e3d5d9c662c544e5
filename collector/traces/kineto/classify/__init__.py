"""Give every slice its kind, track, nesting and links to other slices. May import `decode` only."""
