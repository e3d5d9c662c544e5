"""The time of a step divided into categories without overlap, and the categories of other tools."""
