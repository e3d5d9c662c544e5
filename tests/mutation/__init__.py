"""Changes one thing at a time in formulas, limits and decoders, and asks whether a test notices.

`python -m tests.mutation` lists the rooms; `python -m tests.mutation ROOM…` runs them in a temporary copy and prints
the survivors and the score. It is no part of the gate: a room takes minutes.
"""
