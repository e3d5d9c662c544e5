"""What rules, sentences and pages read: frozen types, with the units in their names.

They may import thresholds and the model of a loop. They measure nothing: no file, no rank, no cache.
"""
