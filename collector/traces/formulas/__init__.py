"""How much work operators do, one file per family: each declares FORMULAS, from an operator's name to its formula.

May import `collector.traces.call`. Files in here do not import each other.
"""
