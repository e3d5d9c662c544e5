"""The report of a run: everything that the pages say, as one object for programs, and as text for a terminal.

Must not import pages or the web room: it is made without a browser.
"""

from profiler_server.report.building import ALONE, Reporting, build_report, is_empty

__all__ = ["ALONE", "Reporting", "build_report", "is_empty"]
