"""What a step is: the words of the event log, made into rows of `steps`.

Depends on the ring and the phases; must not read notes or write tables.
"""
