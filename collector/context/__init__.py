"""What every signal is given: the log, the step counter, the loaders, the undo."""
