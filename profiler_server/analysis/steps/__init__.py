"""The time of steps: outliers, stability, interruptions, compilations, windows."""
