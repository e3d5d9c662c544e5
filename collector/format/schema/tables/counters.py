"""Counters of the timeline."""

from collector.format.schema.columns import Column, Table

TABLE = Table(
    "counters",
    "Counter tracks of the timeline.",
    (
        Column("track", "int32", "", "Track."),
        Column("start_ns", "int64", "ns", "Time of the value, since the run's epoch."),
        Column("value", "float64", "", "Value, in the track's unit."),
    ),
)
