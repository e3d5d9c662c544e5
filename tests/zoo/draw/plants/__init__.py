"""One file per part of a training that a plant slows down: each has PLANTS. Must not import another one."""
