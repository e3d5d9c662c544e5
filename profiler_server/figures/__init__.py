"""The drawings of pages: charts as Plotly dicts, and bars laid out by the server.

Must not import analysis or pages: figures take plain numbers.
"""

from collector.format.phases import PALETTE, PHASE_COLORS
from profiler_server.figures.charts import (
    Axes,
    Chart,
    Figure,
    Line,
    Slice,
    Stack,
    average_runs,
    build_bars,
    build_depths,
    build_lines,
    build_pie,
    build_stack,
    decimate,
    plain_text,
    run_length,
)
from profiler_server.figures.heat import Heat, build_heat
from profiler_server.figures.strips import Bar, Strip, Tick, build_lane, build_strip, build_ticks, percent

__all__ = [
    "PALETTE",
    "PHASE_COLORS",
    "Axes",
    "Bar",
    "Chart",
    "Figure",
    "Heat",
    "Line",
    "Slice",
    "Stack",
    "Strip",
    "Tick",
    "average_runs",
    "build_bars",
    "build_depths",
    "build_heat",
    "build_lane",
    "build_lines",
    "build_pie",
    "build_stack",
    "build_strip",
    "build_ticks",
    "decimate",
    "percent",
    "plain_text",
    "run_length",
]
