"""What every signal is given: the log, the step counter, the loaders, the undo, and what runs once torch is imported.

May import `collector.edge`, `collector.ring`, `collector.format.schema`, `collector.notes` and `collector.options`. Must not
import torch or a signal.
"""
