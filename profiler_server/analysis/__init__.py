"""Functions that compute frozen results from a run's tables for rules, pages and reports, without plots and web
requests.

Must not import a package of a layer above (see docs/concepts/architecture.md).
"""
