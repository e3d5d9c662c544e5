"""What monitoring systems are told of the runs: figures read once, shown by Prometheus and by OpenTelemetry.

May import `store` and the format of runs. Must not import pages or the web.
"""
