"""What a device did: busy and idle time, launches, precision."""
