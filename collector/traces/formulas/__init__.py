"""The work of operators: each file declares FORMULAS, from an operator's name to its formula.

Files here do not import each other.
"""
