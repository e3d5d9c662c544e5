"""Propose loader settings from a short measurement, by simulating the pipeline."""
