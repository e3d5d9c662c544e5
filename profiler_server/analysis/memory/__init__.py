"""Memory of the device and the host, and how busy the processors were."""
