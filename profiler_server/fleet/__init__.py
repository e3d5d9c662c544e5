"""Figures of runs for monitoring systems: read once, exported to Prometheus and OpenTelemetry.

Must not import pages or the web.
"""
