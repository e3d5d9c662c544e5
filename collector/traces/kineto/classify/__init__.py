"""From columns to a trace: kind, track, nesting and links of every slice. May import `decode` only."""
