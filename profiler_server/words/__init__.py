"""Text about facts: shared sentences, and the texts of advice (`texts`).

Must not import a rule, a page, or anything that measures.
"""
