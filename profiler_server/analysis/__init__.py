"""Pure functions from tables to frozen results, without plots and without web requests.

Must not import a room above it.
"""
