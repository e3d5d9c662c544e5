"""The work of a device: busy and idle time, launches, precision."""
