"""Where the time of steps goes: outliers, stability, what held training up, compilations, windows."""
