"""All that a user sees of many recorded runs, as plain data, taken before and after a change and compared."""
