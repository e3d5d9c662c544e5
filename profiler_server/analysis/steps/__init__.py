"""What rules and pages know of the time of steps: outliers, stability, interruptions, compilations, windows."""
