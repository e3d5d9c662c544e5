"""Input that nobody meant. Six kinds: traces, manifests, tables, caches, control and uploads; each is a file here.

    python -m tests.fuzz KIND [--count 10000] [--seed 1]

A kind builds what is attacked, makes mutated cases of a seed, and checks one: it is accepted, or refused in the words
of the product; everything else is a failure. The gate runs some dozens of each and
all of `corpus`: the smallest inputs that ever broke something.
"""
