"""The report of a run: the content of all pages, as one object for programs and as text for a terminal.

The report must not import `pages` or `web`, because a report needs no browser.
"""

from profiler_server.report.building import ALONE, Reporting, build_report, is_empty

__all__ = ["ALONE", "Reporting", "build_report", "is_empty"]
