"""From a trace with its steps to the tables of a run. May import all rooms but `parallel`."""
