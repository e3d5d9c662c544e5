"""Texts on facts: sentences that several rooms share, and the texts of advice (`texts`).

This room must not import a rule, a page, or anything that measures.
"""
