"""Jobs of 2 to 1,024 ranks with a planted culprit: is it named, and is the slowdown what was planted?

`python -m tests.stragglers --seeds 40` runs the whole campaign; the gate takes a small sample.
"""
