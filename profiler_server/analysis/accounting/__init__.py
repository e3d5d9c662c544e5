"""Each nanosecond of a step in exactly one category, in the way that other tools account it."""
