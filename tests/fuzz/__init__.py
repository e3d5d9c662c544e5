"""Input that nobody meant: run as `python -m tests.fuzz.traces 10000`."""
