"""What rules and pages know of the work of a device: busy and idle time, launches, precision."""
