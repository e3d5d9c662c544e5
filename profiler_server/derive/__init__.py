"""Results computed from runs, kept in the one store of a server or a command, so that they need not be computed again.

`@derived` (`derived.py`) marks a function whose result is kept. The key of a result is the function with its
arguments. A rank's selection of steps and its redaction (its lens) are part of the key. The stamp of a result tells
whether it still holds: it comes from the files of the arguments, and changes with them (`stamps.py`). The store
(`store.py`) bounds the memory that results take. Results of large ranks are on disk as well (`records.py`), and so
are the results of each rank of a very large run (`many.py`). Both are computed in the `background`.
"""
