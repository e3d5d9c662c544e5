"""Stands in for a module that the test makes."""
