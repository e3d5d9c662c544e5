"""Build the tables of a run from a trace with its steps. May import all rooms but `parallel`."""
