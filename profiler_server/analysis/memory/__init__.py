"""Analysis of the memory of device and host, and of the load of the processors."""
