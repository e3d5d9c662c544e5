"""How much work operators do, one file per family: each declares FORMULAS, from an operator's name to its formula.

Files in here do not import each other.
"""
