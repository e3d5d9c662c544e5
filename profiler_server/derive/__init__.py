"""Values that are derived from runs, in the one store that a server or a command holds.

A function says by `@derived` (`derived.py`) that its result is kept. The key is the function with its arguments, and so
with the lens that a rank is seen through; the stamp is that of their files (`stamps.py`). The store (`store.py`) bounds
what is in memory. Results of large ranks are on disk as well (`records.py`), as is what is read of each of very many
ranks (`many.py`); both come in the `background`.
"""
