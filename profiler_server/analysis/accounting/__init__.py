"""Each nanosecond of a step given to one category, as other tools count it."""
