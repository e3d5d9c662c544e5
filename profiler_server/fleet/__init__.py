"""What monitoring systems are told of the runs: figures read once, shown by Prometheus and by OpenTelemetry.

Must not import pages or the web.
"""
