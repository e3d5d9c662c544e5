"""Functions that compute frozen results from a run's tables, without plots and without web requests.

Must not import a package of a layer above (see docs/architecture.md).
"""
