"""What a step is: the words of the event log, made into rows of `steps`.

Stands on the ring and on the phases; must not read notes or write tables.
"""
