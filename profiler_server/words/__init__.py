"""What is said of facts: sentences that several places share, and the texts of advice (`texts`).

Must not import a rule, a page, or anything that measures.
"""
