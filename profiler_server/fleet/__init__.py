"""Figures of runs for monitoring systems. They are read once, and exported to Prometheus and OpenTelemetry.

Must not import pages or the web.
"""
