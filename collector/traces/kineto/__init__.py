"""The stages from a Kineto trace to tables: `decode`, `classify`, `steps`, `tables`, in this order.

Must not import torch or a format.
"""
