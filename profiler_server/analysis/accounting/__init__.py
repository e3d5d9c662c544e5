"""Each nanosecond of a step in exactly one category, with the categories of other tools."""
