"""How much work operators do: each file declares FORMULAS, from an operator's name to its formula.

Files in here do not import each other.
"""
