"""Memory of the device and the host, and the load of the processors."""
